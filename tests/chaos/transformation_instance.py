"""An instance with a stateful processor, whose timers go by the clock; else as `instance`, which is beside it."""

import instance
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from sparkrelay import Json, StreamsBuilder, String


class Numbering(StatefulProcessor):
    """Numbers each user's orders as they come, and says once more, a moment later, which they were."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.last = handle.getListState("last", "id long")
        self.waiting = handle.getMapState("waiting", "due long", "ids array<long>")

    def handleInputRows(self, key, rows, times):
        (n,) = self.count.get() or (0,)
        due = times.getCurrentProcessingTimeInMs() + 300
        ids = []
        for row in rows:
            n += 1
            ids.append(row.id)
            self.last.appendValue((row.id,))
            yield Row(user=key[0], id=row.id, n=n, listed=len(list(self.last.get())), timer=False)
        self.count.update((n,))
        before = self.waiting.getValue((due,)) or ([],)
        self.waiting.updateValue((due,), (before[0] + ids,))
        self.handle.registerTimer(due)

    def handleExpiredTimer(self, key, times, info):
        due = (info.getExpiryTimeInMs(),)
        for id_ in self.waiting.getValue(due)[0]:
            yield Row(user=key[0], id=id_, n=0, listed=0, timer=True)
        self.waiting.removeKey(due)

    def close(self):
        pass


def pipeline(topics):
    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long"))
    numbered = orders.groupBy("user").transformWithState(
        Numbering(),
        "user string, id long, n long, listed int, timer boolean",
        "Append",
        "ProcessingTime",
        name="numbers",
    )
    numbered.to(topics["numbered"], key=String("user"), value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
