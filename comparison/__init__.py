"""The method comparison: every method on every dataset, tuned alike, and which one to use.

candidates  methods that are compared
datasets    vehicles that they train on, without and with elevation
plan        rounds, seeds, trials
search      the trials of a method
costs       bytes and client compute of a method, and the rounds that they pay for
carry_out   one method on one dataset: tuned, trained, fine-tuned → its record
schedule    all runs, in processes or on Ray, each kept when it is finished
records     one line of JSON per run
evaluate    from records to differences by independent dataset, and the recommendation
page        from these to docs/which-method.md, README.md and results/comparison.csv
report      the same as one sortable HTML table
"""
