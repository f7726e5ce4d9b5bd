from callboard.tests.flows.edge_kit import Served
async def test_a(served: Served):
    id = await served.open("counter", path="/c")
    m = await served.say(id, "count 5")
    print(m)
    async with served.stream(f"/v1/sessions/{id}/events") as s:
        print(s.status, s.headers)
        ev = await s.until("turn.completed")
        print(ev)
        print(await served.log(id) == ev)
    async with served.stream(f"/v1/turns/{m['turn_id']}/events") as s:
        print(await s.rest())
    async with served.live() as live:
        print(await live.ask("subscribe", session=id, after=0))
        ev = await live.until("turn.completed")
        print(await served.log(id) == ev)
        print(await live.ask("send", session=id, content="count 2"))
        print(await live.until("turn.completed"))
