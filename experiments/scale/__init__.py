"""Error and time of gradient estimators for rows of 10, 100 and 1,000 items."""
