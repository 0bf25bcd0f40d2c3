"""From the columns of a DataFrame to those that records are made of, without looking at rows."""
