"""asyncio: many requests in one engine, streams, cancelling."""
import asyncio
import gc

import pytest

from ingot import InvalidError, Model

STORY = "Tell me a story about a fox."


def test_many_at_once():
    with Model.load(n_ctx=512, n_threads=2, deterministic=True) as model:
        async def go():
            return await asyncio.gather(*(model.achat(STORY, seed=i, max_tokens=20) for i in range(24)), *(model.agenerate("One", seed=i, max_tokens=20) for i in range(8)))

        answers = asyncio.run(go())
        assert [a.tokens for a in answers[:24]] == [model.chat(STORY, seed=i, max_tokens=20).tokens for i in range(24)]
        assert [a.text for a in answers[24:]] == [model.generate("One", seed=i, max_tokens=20).text for i in range(8)]


def test_streams(model):
    async def go():
        stream = await model.achat(STORY, seed=4, max_tokens=25, stream=True)
        text = "".join([delta.content async for delta in stream])
        return text, await stream.answer()

    text, answer = asyncio.run(go())
    assert text == answer.text == model.chat(STORY, seed=4, max_tokens=25).text


def test_the_loop_goes_on_meanwhile(model):
    async def go():
        ticks = 0
        task = asyncio.ensure_future(model.agenerate("One", max_tokens=150, ignore_eos=True))
        while not task.done():
            ticks += 1
            await asyncio.sleep(0.001)
        return ticks

    assert asyncio.run(go()) > 5


def test_cancelled_tasks_free_their_place(model):
    async def go():
        tasks = [asyncio.ensure_future(model.agenerate("One", ignore_eos=True)) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*tasks, return_exceptions=True))
        tasks.clear()
        gc.collect()
        return await asyncio.wait_for(model.agenerate("Two", max_tokens=3), 60)

    assert asyncio.run(go()).output_tokens == 3


def test_errors_come_at_the_call(model):
    async def go():
        await model.achat(STORY, top_p=7)

    with pytest.raises(InvalidError, match="top_p"):
        asyncio.run(go())


def test_a_closed_loop_is_no_fault(model):
    """The loop ends while the engine still writes for it."""
    async def go():
        return await model.agenerate("One", ignore_eos=True, stream=True)

    abandoned = asyncio.run(go())
    assert model.generate("Two", max_tokens=30).output_tokens > 0
    abandoned.close()
