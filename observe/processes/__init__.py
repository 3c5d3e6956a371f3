"""One load from several processes: the plan is dealt beforehand, all start at one moment, one trace comes out."""
