"""The leader's part of a rebalance: it calls the assignor and makes each member's assignment."""
