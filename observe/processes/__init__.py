"""One load from several processes: the plan is divided before the run, all start at one moment, into one trace."""
