"""What protects a fleet under attack.

plain             every vehicle's own answer
masks, curious    sums, by a server that follows the protocol and looks at what it gets
masks             sums, by a server that lies, to vehicles that answer whatever is asked: it
                  asks twice, the second time without the victim, and takes the difference
masks + policy    the same with the default policy on board, for a day of as many questions as
                  it allows. Vehicles train models that rounds made and no others, and hide
                  their replies; the server knows all of that.
+ noise           the same in a run with a private method, z = 1. Its noise is on the replies
                  of rounds; error sums and counts of hills have none that a lying server would
                  not leave out
"""

from typing import Final

PLAIN: Final = "plain"
CURIOUS: Final = "masks, curious"
MASKS: Final = "masks"
POLICY: Final = "masks + policy"
NOISE: Final = "masks + policy + noise"
LEVELS: Final = (PLAIN, CURIOUS, MASKS, POLICY, NOISE)
GUESS: Final = "no messages"
"""What an attacker scores who sees nothing."""
