"""What keeps answers coming, in time, when the model does not. docs/resilience.md says what an operator sees of it.

On the way of a turn to the model:

1. ``cache``      an answer that is known already (off by default).
2. ``pool``       which address is asked, and whether another one is when it is unavailable; ``retries`` how often.
3. ``member``     one address: refuses what cannot succeed, and learns from what became of the rest.
                  ``breaker`` leaves an address alone that fails, ``outliers`` one that does worse than the others;
                  ``limits`` how many turns at once, ``run_times`` what cannot be in time, ``windows`` their figures.
4. ``settings``   the figures behind all this; ``observing`` who is told what happened.

Trouble that is left ends where all trouble ends: ``serving.rewriting`` passes the original turn through.
"""
