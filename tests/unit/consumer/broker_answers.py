"""A broker's answers for one topic ``t`` and one group ``g``."""

from __future__ import annotations

from kafka.protocol.consumer import ListOffsetsResponse, OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse


def found(node=2, code=0):
    make = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[make(key="g", node_id=node, host="h", port=1, error_code=code, error_message=None)]
    )


def committed(code=0):
    make = OffsetCommitResponse.OffsetCommitResponseTopic
    part = make.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[make(name="t", partitions=[part])])


def fetched(offset=7, code=0, group_code=0):
    make = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = make.OffsetFetchResponseTopics
    part = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, metadata="x", error_code=code
    )
    return OffsetFetchResponse(
        groups=[make(group_id="g", topics=[topic(name="t", partitions=[part])], error_code=group_code)]
    )


def listed(*answers):
    make = ListOffsetsResponse.ListOffsetsTopicResponse
    part = make.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        topics=[
            make(
                name="t",
                partitions=[
                    part(partition_index=p, error_code=code, timestamp=-1, offset=offset, leader_epoch=0)
                    for p, code, offset in answers
                ],
            )
        ]
    )
