"""The checks of ``sparkrelay doctor`` before an instance is started: machine, state directory, brokers.

Each check is a function from facts to findings. What gathers the facts is beside it, with a bound on its time.
"""
