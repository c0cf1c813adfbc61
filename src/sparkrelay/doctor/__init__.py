"""What ``sparkrelay doctor`` looks at before an instance is started: this machine, its state directory, the brokers.

Each check is a function of what was found, which returns findings; what finds it stands beside, and waits with a bound.
"""
