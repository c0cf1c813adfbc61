"""Tables that also know what rows were before."""
