//! The short way of an event, on which numbers alone decide, is the long way: two clients are told the same, one by
//! `accept` as the browser's driver does, one by `handle_event`. They show, hold, count and say the same, and lose no payload.

use inorder::Client;
use inorder::client::{
    Can, ChangeKind, Command, EntityId, Epoch, Event, EventId, Output, Position, Request, Snapshot, Status, Sync,
    Verdict,
};
use inorder::config::{Config, Continuity, Model, OnGap};
use inorder::stats::Stats;
use inorder::time::Instant;

const RUNNING: Status = Status(1);
const COMPLETED: Status = Status(2);

/// Runs of so many steps each.
const RUNS: u64 = 1_000;
const STEPS: u32 = 60;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// What one client did: changes as kind, epoch and number, and everything else in words.
type Said = Vec<String>;

struct Twin {
    client: Client<u64>,
    job: EntityId,
    short: bool,
    /// The last question that a snapshot answers.
    asked: Request,
    said: Said,
    /// Payloads that went in and did not come out.
    inside: usize,
    /// Verdicts of the short way: applied, advanced, dropped.
    verdicts: [u64; 3],
}

impl Twin {
    fn new(model: Model, short: bool) -> Twin {
        let mut client = Client::new(Config::default(), 1);
        let model = client.add_model(model);
        let job = client.add_entity(model);
        let mut twin = Twin { client, job, short, asked: 0, said: Vec::new(), inside: 1, verdicts: [0; 3] };
        twin.client.subscribe(Instant(0), job);
        twin.drain(Instant(0));
        let generation = twin.client.current();
        twin.client.handle_opened(Instant(1), generation);
        twin.drain(Instant(1));
        twin.client.handle_welcome(Instant(2), None, Can { replay: true, snapshot: true, heads: true });
        twin.drain(Instant(2));
        let snapshot = Snapshot { request: Some(twin.asked), epoch: Epoch(1), seq: 5, status: RUNNING };
        twin.client.handle_snapshot(Instant(2), job, snapshot, 1);
        twin.drain(Instant(2));
        assert_eq!(twin.client.sync(job), Sync::Live);
        twin
    }

    fn event(&mut self, now: Instant, event: Event, payload: u64) {
        let seq = event.seq.unwrap_or(0);
        let verdict = match (self.short, event.prev) {
            (false, _) => Verdict::Slow,
            (true, prev) => {
                let prev = prev.unwrap_or(seq.wrapping_sub(1));
                let visible = event.has_data || event.status.is_some();
                if event.id.is_some() {
                    self.client.accept_with_id(self.job, prev, seq, event.epoch, event.status, visible, event.id)
                } else {
                    self.client.accept(self.job, prev, seq, event.epoch, event.status, visible)
                }
            }
        };
        match verdict {
            Verdict::Slow => {
                self.inside += 1;
                self.client.handle_event(now, self.job, event, payload);
            }
            Verdict::Apply => {
                self.verdicts[0] += 1;
                let shown = (ChangeKind::Event, event.epoch, seq, event.status, payload);
                self.show(now, shown, Some((event, payload)));
            }
            Verdict::Advance => self.verdicts[1] += 1,
            Verdict::Drop => self.verdicts[2] += 1,
        }
        self.drain(now);
    }

    /// Hands a change over as a facade does: what is terminal locks, and some changes can't be reduced.
    fn show(&mut self, now: Instant, shown: (ChangeKind, Epoch, u64, Status, u64), event: Option<(Event, u64)>) {
        let (.., status, payload) = shown;
        if payload % 37 == 0 {
            self.said.push(format!("throws {shown:?}"));
            self.inside += usize::from(event.is_some());
            self.client.rollback(now, self.job, event);
        } else {
            self.said.push(format!("shows {shown:?}"));
            if status == COMPLETED {
                self.client.lock(now, self.job);
            }
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(output) = self.client.poll_output(now) {
            match output {
                Output::Change(change) => {
                    self.inside -= usize::from(change.payload.is_some());
                    let payload = change.payload.unwrap_or(1);
                    let event = Event {
                        epoch: change.epoch,
                        prev: Some(change.prev),
                        seq: Some(change.seq),
                        id: change.id,
                        status: change.status,
                        has_data: change.payload.is_some(),
                        bytes: change.bytes,
                    };
                    let event = (change.kind == ChangeKind::Event).then_some((event, payload));
                    self.show(now, (change.kind, change.epoch, change.seq, change.status, payload), event);
                }
                Output::Discard(_) => self.inside -= 1,
                Output::Send(Command::Subscribe { request, .. } | Command::Snapshot { request, .. }) => {
                    self.asked = request;
                }
                other => self.said.push(format!("{other:?}")),
            }
        }
    }

    fn state(&self) -> (Option<Position>, Status, Sync, bool, usize, u64, Stats, Option<Instant>) {
        let (client, job) = (&self.client, self.job);
        (
            client.position(job),
            client.status(job),
            client.sync(job),
            client.is_final(job),
            client.held(job),
            client.held_bytes(),
            client.stats().clone(),
            client.poll_timeout(),
        )
    }
}

/// One run of both; returns the verdicts of the short way.
fn run(seed: u64) -> [u64; 3] {
    let mut dice = Dice(seed);
    let model = Model {
        continuity: [Continuity::PlusOne, Continuity::PlusOne, Continuity::Range, Continuity::Prev]
            [dice.below(4) as usize],
        on_gap: [None, None, Some(OnGap::Snapshot), Some(OnGap::Skip)][dice.below(4) as usize],
        ids: [32, 2, 0][dice.below(3) as usize],
        overlap_absolute: dice.below(2) == 0,
        reset_seq: [None, None, None, Some(1)][dice.below(4) as usize],
        replay_whole: dice.below(4) == 0,
        ..Model::default()
    };
    let mut twins = [true, false].map(|short| Twin::new(model, short));
    let mut now = 2;
    for step in 0..STEPS {
        now += [0, 1, 90, 200, 4_000][dice.below(5) as usize];
        let at = twins[1].client.position(twins[1].job).map_or(5, |position| position.seq);
        // Near the position, most often the next.
        let seq = match dice.below(16) {
            0 => at + 2,
            1 => at + 3,
            2 => at,
            3 => at.saturating_sub(1),
            4 => 1,
            _ => at + 1,
        };
        let epoch = if dice.below(16) == 0 { Epoch(2) } else { Epoch(1) };
        let payload = 1 + dice.below(1_000);
        let kind = dice.below(22);
        let event = Event {
            epoch,
            prev: (model.continuity == Continuity::Prev || dice.below(12) == 0)
                .then(|| seq.saturating_sub(1 + dice.below(2))),
            seq: Some(seq),
            id: EventId(dice.below(8).saturating_sub(4) + 3 * (seq % 2)),
            status: [Status::NONE, Status::NONE, RUNNING, RUNNING, COMPLETED]
                [dice.below(if step < STEPS - 20 { 4 } else { 5 }) as usize],
            has_data: dice.below(5) > 0,
            bytes: 100,
        };
        let request = (dice.below(3) > 0).then_some(twins[1].asked);
        let snapshot = Snapshot { request, epoch, seq, status: event.status };
        for twin in &mut twins {
            let at = Instant(now);
            match kind {
                0..18 => twin.event(at, event, payload),
                18 => twin.client.handle_vacant(at, twin.job, epoch, seq, seq + 1),
                19 | 20 => {
                    twin.inside += 1;
                    twin.client.handle_snapshot(at, twin.job, snapshot, payload);
                }
                _ => twin.client.handle_timeout(at),
            }
            twin.drain(at);
            // Each payload is shown, discarded or held; a vacancy is held without any.
            assert!(twin.inside <= twin.client.held(twin.job), "seed {seed}, step {step}: {event:?}");
        }
        let [short, long] = &twins;
        let said = short.said.iter().zip(&long.said).position(|(a, b)| a != b).unwrap_or(0);
        assert_eq!(short.said, long.said, "seed {seed}, step {step}, word {said}: {event:?}");
        assert_eq!(short.state(), long.state(), "seed {seed}, step {step}: {event:?}");
    }
    twins[0].verdicts
}

#[test]
fn the_short_way_is_the_long_way() {
    let mut all = [0; 3];
    for seed in 0..RUNS {
        for (sum, count) in all.iter_mut().zip(run(seed)) {
            *sum += count;
        }
    }
    let [applied, advanced, dropped] = all;
    println!("{applied} applied, {advanced} advanced, {dropped} dropped by the short way");
    assert!(applied > 1_000 && advanced > 50 && dropped > 50, "{all:?}");
}
