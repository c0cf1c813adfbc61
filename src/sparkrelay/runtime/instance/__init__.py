"""An instance of an application, as its user holds it: start, lifecycle, what it prints and reports, stop, reset.

May use every other room of the runtime; none of them may use this one.
"""
