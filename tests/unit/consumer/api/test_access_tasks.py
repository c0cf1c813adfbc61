"""Access keys by asyncio task: nothing is inherited, everything is handed over."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from sparkrelay.consumer.api.access import AccessControl, Tasks
from sparkrelay.errors import AccessKeyError, ConcurrentModificationError


@pytest.fixture
def access():
    return AccessControl(Tasks())


async def call(access, inside=None):
    key = access.acquire()
    try:
        await asyncio.sleep(0)
        return await inside() if inside is not None else None
    finally:
        access.release(key)


def run(main):
    return asyncio.run(main)


def test_in_a_callback_the_same_task_may_call_three_deep(access):
    async def deepest():
        return "three deep"

    async def main():
        assert await call(access, lambda: call(access, lambda: call(access, deepest))) == "three deep"
        assert access.key is None

    run(main())


def test_a_child_task_inherits_nothing_but_may_be_handed_the_key(access):
    async def main():
        async def callback():
            key = access.require_key()

            async def child(*, with_key):
                assert access.key is None
                if not with_key:
                    await call(access)
                with access.lend(key):
                    await call(access)
                    await call(access, lambda: call(access))
                assert access.key is None

            with pytest.raises(ConcurrentModificationError, match="task 'child' called a consumer that task 'parent'"):
                await asyncio.create_task(child(with_key=False), name="child")
            await asyncio.gather(child(with_key=True))
            context = contextvars.copy_context()
            await asyncio.get_running_loop().create_task(child(with_key=True), context=context)
            return "done"

        asyncio.current_task().set_name("parent")
        assert await call(access, callback) == "done"

    run(main())


def test_a_thread_inherits_nothing_and_gets_an_error(access):
    async def main():
        async def callback():
            def work():
                with pytest.raises(AccessKeyError, match="is not running an asyncio task"):
                    _ = access.key
                with pytest.raises(AccessKeyError, match="is not running an asyncio task"):
                    access.acquire()

            await asyncio.to_thread(work)

        await call(access, callback)

    run(main())


def test_children_at_once_with_one_key_but_one_are_refused(access):
    async def main():
        async def callback():
            key = access.require_key()

            async def child():
                async with access.lend(key):
                    await call(access)

            outcomes = await asyncio.gather(*(child() for _ in range(3)), return_exceptions=True)
            assert [type(one) for one in outcomes] == [type(None), *[ConcurrentModificationError] * 2]
            lock = asyncio.Lock()

            async def orderly():
                async with lock, access.lend(key):
                    await call(access)

            await asyncio.gather(*(orderly() for _ in range(3)))

        await call(access, callback)

    run(main())


def test_a_callback_that_returns_too_early_is_found_at_once(access):
    async def main():
        children, go = [], asyncio.Event()

        async def callback():
            key = access.require_key()

            async def child():
                with access.lend(key):
                    await call(access, go.wait)

            children.append(asyncio.create_task(child(), name="late"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        async def outer():
            await callback()
            access.check()

        with pytest.raises(AccessKeyError, match="while task 'late' was still using"):
            await call(access, outer)
        with pytest.raises(ConcurrentModificationError):
            await call(access)
        go.set()
        await asyncio.gather(*children)
        await call(access)

    run(main())


def test_a_callback_that_returns_while_a_task_is_in_its_block_is_found_out(access):
    async def main():
        children, inside, go = [], asyncio.Event(), asyncio.Event()

        async def callback():
            key = access.require_key()

            async def child():
                async with access.lend(key):
                    await call(access)
                    inside.set()
                    await go.wait()
                    with pytest.raises(AccessKeyError, match="task 'late' may not use the consumer any more"):
                        await call(access)
                await call(access)

            children.append(asyncio.create_task(child(), name="late"))
            await inside.wait()

        async def outer():
            await callback()
            access.check()

        with pytest.raises(AccessKeyError, match="while task 'late' was still using"):
            await call(access, outer)
        await call(access)
        go.set()
        await asyncio.gather(*children)
        assert access._inside == []
        await call(access)

    run(main())


def test_cancelling_releases(access):
    async def main():
        task = asyncio.create_task(call(access, lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await call(access)
        assert access._stack == []

    run(main())


def test_a_key_that_was_set_ends_with_its_task(access):
    async def main():
        async def callback():
            key = access.require_key()

            async def child():
                access.key = key
                await call(access)
                assert access.key is key

            await asyncio.create_task(child())

        await call(access, callback)
        await asyncio.sleep(0)
        assert access._carriers._keys == {}

    run(main())


def test_a_callback_may_change_its_binding_and_the_call_still_ends_well(access):
    async def main():
        async def outer():
            access.key = None
            access.check()
            await call(access)

        await call(access, outer)
        assert access._stack == []

    run(main())


def test_a_loop_that_is_gone_holds_nothing(access):
    async def main():
        task = asyncio.create_task(call(access, lambda: asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task._log_destroy_pending = False
        assert access._stack

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    access.abandon()
    run(call(access))
