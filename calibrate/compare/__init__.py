"""How much two sides of the same requests differ, with intervals. No fit."""
