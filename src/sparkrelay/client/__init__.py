"""Connections to Kafka brokers, and operations that need no group membership.

``KafkaClient`` sends requests and knows the cluster; ``Admin`` makes and describes topics; ``Producer`` sends encoded
batches under a lent producer id; ``TransactionCoordinator`` opens and ends the transactions of many tasks at once.
"""
