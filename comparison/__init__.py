"""The tournament: every method on every fleet, tuned alike, and a page that says which to use.

entries     who takes part
fleets      on which vehicles, without and with hills
plan        how long, how often, how many trials
search      the trials of an entry
costs       bytes and client compute of an entry, and the rounds that they pay for
play        one entry on one fleet: tuned, trained, fine-tuned → its record
season      all of them, in processes or on Ray, each kept as it is finished
judge       from records to matrices, winners and answers
page        from these to docs/which-method.md
"""
