"""Commands about data: known data sets, and what an owner's data have spent."""
