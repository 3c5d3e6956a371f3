"""How far two sides of the same requests are apart, with intervals. No fit."""
