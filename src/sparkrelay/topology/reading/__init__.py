"""What analysed plans mean: each node that is not row-wise is one of the pipeline's steps, or refused."""
