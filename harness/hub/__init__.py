"""Results and test strings as a data set that others can load: Parquet, a data card, a Croissant file, a page."""
