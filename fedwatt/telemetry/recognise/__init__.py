"""Look at recordings and decide what they are: columns, units, clock, vehicles and trips.

One decision, one file; each gives its reason, which the user is shown. What columns and dates look
like is data: `header_names.toml` and `date_formats.toml`.
"""
