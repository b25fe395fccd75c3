"""What callers notice while things go wrong: ``make chaos``, or ``python -m benchmarks.chaos`` from the root.

Real processes on loopback: the front, and two stand-ins for TF Serving (``tests.stand_in``), or the model in the front.

1. ``callers``     eight steady callers (once forty), a flood of calls, and what each call came to.
2. ``processes``   starts, kills and starts anew.
3. ``with_tf_serving``, ``embedded``: what goes wrong, and when.
4. ``report``      the table, the JSON file, and the goals that decide the exit status.

It takes half an hour; ``--quick`` two or three minutes, which shows that it works and measures nothing.
"""
