"""Pages of docs/reference, each made from the tables that the code goes by."""
