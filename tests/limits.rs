//! Times to the millisecond and limits to the last one: what the protocol's page promises in its section 13.

use inorder::Client;
use inorder::client::{
    Can, ChangeKind, Command, EntityId, Epoch, ErrorCode, Event, EventId, Fault, ModelId, Output, Request, Resume,
    Snapshot, Status, Sync, Verdict,
};
use inorder::config::{Backoff, Config, Continuity, Model, OnGap, Reopen};
use inorder::time::Instant;

const E: Epoch = Epoch(1);
const F: Epoch = Epoch(2);
const ALL: Can = Can { replay: true, snapshot: true, heads: true };
const RUNNING: Status = Status(1);
const COMPLETED: Status = Status(2);

/// Where every test starts, in ms.
const START: u64 = 100_000;

/// A client, its entities, and what it did: the time since the start and a word.
struct Page {
    client: Client<()>,
    model: ModelId,
    job: EntityId,
    now: Instant,
    said: Vec<(u64, &'static str)>,
    /// The last request that asked for something.
    asked: Request,
    ping: u32,
    /// Pings are answered at once.
    pongs: bool,
    /// For whom replays and snapshots were asked, in turn.
    whom: Vec<EntityId>,
    /// What the last `subscribe` named.
    resumes: Vec<Resume>,
    /// The event of this number can't be reduced.
    spoilt: u64,
    /// No snapshot can.
    rejects: bool,
}

impl Page {
    /// Wants one entity; nothing was dialed yet.
    fn new(config: Config, model: Model) -> Page {
        let mut client = Client::new(config, 1);
        let model = client.add_model(model);
        let job = client.add_entity(model);
        Page {
            client,
            model,
            job,
            now: Instant(START),
            said: Vec::new(),
            asked: 0,
            ping: 0,
            pongs: true,
            whom: Vec::new(),
            resumes: Vec::new(),
            spoilt: 0,
            rejects: false,
        }
    }

    fn dialed() -> Page {
        let mut page = Page::new(Config::default(), Model::default());
        page.client.subscribe(page.now, page.job);
        page.drain();
        page
    }

    /// Live at (E, 5), long stable.
    fn live() -> Page {
        Page::live_with(Config::default(), Model::default(), None, ALL)
    }

    fn live_with(config: Config, model: Model, heartbeat: Option<u64>, can: Can) -> Page {
        let mut page = Page::new(config, model);
        page.client.subscribe(page.now, page.job);
        page.drain();
        page.welcome(heartbeat, can);
        page.answer(5);
        page.said.clear();
        page
    }

    fn welcome(&mut self, heartbeat: Option<u64>, can: Can) {
        let generation = self.client.current();
        self.client.handle_opened(self.now, generation);
        self.drain();
        self.client.handle_heard(self.now);
        self.client.handle_welcome(self.now, heartbeat, can);
        self.drain();
    }

    fn event(&mut self, seq: u64) {
        self.weighs(seq, 1);
    }

    fn weighs(&mut self, seq: u64, bytes: u32) {
        self.gives(self.job, seq, EventId::NONE, bytes, Status::NONE);
    }

    fn gives(&mut self, id: EntityId, seq: u64, event: EventId, bytes: u32, status: Status) {
        let event = Event { id: event, status, bytes, ..plain(seq) };
        self.client.handle_event(self.now, id, event, ());
        self.drain();
    }

    /// Answers the last question with a snapshot.
    fn answer(&mut self, seq: u64) {
        self.answers(self.job, Some(self.asked), E, seq);
    }

    fn answers(&mut self, id: EntityId, request: Option<Request>, epoch: Epoch, seq: u64) {
        self.client.handle_snapshot(self.now, id, Snapshot { request, epoch, seq, status: RUNNING }, ());
        self.drain();
    }

    fn ends(&mut self, code: u16) {
        let generation = self.client.current();
        self.client.handle_closed(self.now, generation, code);
        self.drain();
    }

    /// Another entity, live at (E, 5).
    fn another(&mut self) -> EntityId {
        self.another_of(self.model)
    }

    fn another_of(&mut self, model: ModelId) -> EntityId {
        let id = self.client.add_entity(model);
        self.client.subscribe(self.now, id);
        self.drain();
        self.answers(id, Some(self.asked), E, 5);
        id
    }

    fn of_epoch(&mut self, epoch: Epoch, seq: u64) {
        self.client.handle_event(self.now, self.job, Event { epoch, ..plain(seq) }, ());
        self.drain();
    }

    fn subscribed(&mut self, head: u64) {
        self.client.handle_subscribed(self.now, self.job, self.asked, E, head);
        self.drain();
    }

    fn fails(&mut self, request: Option<Request>) {
        self.client.handle_error(self.now, ErrorCode::Other, request, Some(self.job), None);
        self.drain();
    }

    fn seq(&self) -> Option<u64> {
        self.client.position(self.job).map(|at| at.seq)
    }

    /// Loses its socket and gets another, on which it resumes.
    fn reconnects(&mut self) {
        self.ends(1006);
        let at = self.client.retry_at().expect("a dial is armed");
        self.pass(at.0 - self.now.0);
        self.welcome(None, ALL);
    }

    /// Time passes and no timer fires meanwhile.
    fn sleeps(&mut self, ms: u64) {
        self.now = self.now + ms;
        self.client.handle_timeout(self.now);
        self.drain();
        self.pass(0);
    }

    /// Lets time pass, to the millisecond; what is due is done when it is due.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(at) = self.client.poll_timeout().filter(|at| *at <= until) {
            assert!(at > self.now || self.said.len() < 10_000, "a timer that never rests");
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(output) = self.client.poll_output(self.now) {
            let word = match output {
                Output::Change(change) if change.kind == ChangeKind::Snapshot && self.rejects => {
                    self.client.rollback(self.now, change.entity, None);
                    "rollback"
                }
                Output::Change(change) if change.kind == ChangeKind::Event && change.seq == self.spoilt => {
                    let event = Event {
                        epoch: change.epoch,
                        prev: Some(change.prev),
                        seq: Some(change.seq),
                        id: change.id,
                        status: change.status,
                        has_data: true,
                        bytes: change.bytes,
                    };
                    self.client.rollback(self.now, change.entity, Some((event, ())));
                    "rollback"
                }
                Output::Change(change) => {
                    if change.locks || change.status == COMPLETED {
                        self.client.lock(self.now, change.entity);
                    }
                    "change"
                }
                Output::Dial { .. } => "dial",
                Output::Close { code: 4000, .. } => "replace",
                Output::Close { code: 4002, .. } => "give up on frames",
                Output::Close { .. } => "close",
                Output::GetToken { .. } => "token",
                Output::CancelToken { .. } => "cancel token",
                Output::Fault { fault: Fault::GaveUp, .. } => "gave up",
                Output::Fault { fault: Fault::FarAhead, .. } => "far ahead",
                Output::Fault { fault: Fault::BadFrame, .. } => "bad frame",
                Output::Fault { fault: Fault::Diverged, .. } => "diverged",
                Output::Fault { fault: Fault::TokenFailed, .. } => "token failed",
                Output::Fault { fault: Fault::Server, .. } => "server",
                Output::Final { .. } => "final",
                Output::Gap { .. } => "gap",
                Output::Forgotten { .. } => "forgotten",
                Output::Send(Command::Subscribe { request, entities }) => {
                    self.asked = request;
                    self.resumes = entities;
                    "subscribe"
                }
                Output::Send(Command::Replay { request, ranges }) => {
                    self.asked = request;
                    self.whom.extend(ranges.iter().map(|range| range.entity));
                    "replay"
                }
                Output::Send(Command::Snapshot { request, entities }) => {
                    self.asked = request;
                    self.whom.extend(entities);
                    "snapshot"
                }
                Output::Send(Command::Heads { request, entities }) => {
                    self.asked = request;
                    assert_eq!(entities.len(), 1, "who is asked for is named once");
                    "heads"
                }
                Output::Send(Command::Ping { id }) => {
                    self.ping = id;
                    if self.pongs {
                        self.client.handle_heard(self.now);
                        self.client.handle_pong(self.now, id);
                    }
                    "ping"
                }
                Output::Send(Command::Unsubscribe { .. }) => "unsubscribe",
                _ => continue,
            };
            self.said.push((self.now.0 - START, word));
        }
    }

    /// When it did this.
    fn when(&self, word: &str) -> Vec<u64> {
        self.said.iter().filter(|(_, said)| *said == word).map(|(at, _)| *at).collect()
    }

    /// How often it did this.
    fn count(&self, word: &str) -> usize {
        self.when(word).len()
    }

    fn sync(&self) -> Sync {
        self.client.sync(self.job)
    }
}

fn plain(seq: u64) -> Event {
    Event { epoch: E, prev: None, seq: Some(seq), id: EventId::NONE, status: Status::NONE, has_data: true, bytes: 1 }
}

#[test]
fn a_dial_has_fifteen_seconds_to_its_welcome() {
    let mut page = Page::dialed();
    page.pass(14_999);
    assert_eq!(page.count("replace"), 0);
    page.pass(1);
    assert_eq!(page.when("replace"), [15_000]);
    // Not stable, so the next dial is spread over 0.1 to 0.5 s.
    page.pass(500);
    assert!(matches!(page.when("dial")[..], [0, 15_100..=15_500]), "{:?}", page.said);
}

#[test]
fn a_subscribe_is_asked_again_after_five_seconds() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    let first = page.asked;
    page.pass(4_999);
    assert_eq!(page.when("subscribe"), [0]);
    page.pass(1);
    assert_eq!((page.when("subscribe"), page.when("ping")), (vec![0, 5_000], vec![5_000]), "and the socket is probed");
    assert_eq!(page.asked, first, "a question that is asked again keeps its request");
    page.answer(5);
    assert_eq!(page.sync(), Sync::Live);
}

#[test]
fn the_ladder_keeps_its_times() {
    let mut page = Page::live();
    page.event(7);
    page.pass(99);
    assert_eq!((page.count("replay"), page.sync()), (0, Sync::Live));
    page.pass(1);
    assert_eq!((page.when("replay"), page.sync()), (vec![100], Sync::Recovering));
    page.pass(30_000);
    assert_eq!(page.when("replay"), [100, 3_100]);
    // Snapshots wait 0, then uniform in [w/2, w] of 1, 2, 4 … after five seconds each.
    let asked = page.when("snapshot");
    assert_eq!(asked[0], 6_100);
    assert!((11_600..=12_100).contains(&asked[1]), "{asked:?}");
    assert!((asked[1] + 6_000..=asked[1] + 7_000).contains(&asked[2]), "{asked:?}");
}

#[test]
fn a_page_and_a_part_start_the_deadline_again() {
    let mut page = Page::live();
    page.event(9);
    page.pass(100);
    let request = page.asked;
    page.pass(2_999);
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.event(6);
    page.client.end_replay(page.now, page.job, request, false);
    page.drain();
    page.pass(2_999);
    assert_eq!(page.count("replay"), 1);
    page.pass(1);
    assert_eq!(page.count("replay"), 2);
    page.pass(3_000);
    assert_eq!(page.count("snapshot"), 1);
    page.pass(4_999);
    let request = page.asked;
    assert!(page.client.handle_part(page.now, page.job, Some(request)));
    page.pass(4_999);
    assert!(page.client.handle_part(page.now, page.job, Some(request)));
    assert!(!page.client.handle_part(page.now, page.job, Some(request + 1)));
    page.answer(9);
    assert_eq!(page.sync(), Sync::Live);
}

#[test]
fn an_entity_is_given_up_once_and_tried_every_thirty_seconds() {
    let mut page = Page::live();
    page.event(7);
    page.pass(100);
    page.client.handle_gone(page.now, page.job, page.asked);
    page.drain();
    for _ in 0..4 {
        page.pass(30_000);
    }
    assert_eq!(page.count("gave up"), 1);
    assert_eq!(page.sync(), Sync::Failed);
    let asked = page.when("snapshot");
    let given_up = page.when("gave up")[0];
    assert_eq!(asked.iter().filter(|at| **at < given_up).count(), 5, "{asked:?}");
    let later: Vec<u64> = asked.iter().copied().filter(|at| *at >= given_up).collect();
    assert_eq!(later[0], given_up + 30_000);
    while page.count("snapshot") == asked.len() {
        page.pass(1_000);
    }
    let mut other = page_at(&page);
    page.answer(8);
    assert_eq!(page.sync(), Sync::Live);
    // What fits is shown meanwhile.
    other.event(6);
    assert_eq!(other.seq(), Some(7));
}

#[test]
fn errors_are_answered_after_two_seconds_and_not_before_retry_after() {
    let mut page = Page::live();
    page.event(7);
    page.pass(100);
    page.client.handle_error(page.now, ErrorCode::Other, Some(page.asked), Some(page.job), None);
    page.drain();
    page.pass(1_999);
    assert_eq!(page.when("replay"), [100]);
    page.pass(1);
    assert_eq!(page.when("replay"), [100, 2_100]);
    page.client.handle_error(page.now, ErrorCode::Other, Some(page.asked), Some(page.job), Some(7_000));
    page.drain();
    page.pass(6_999);
    assert_eq!(page.count("replay") + page.count("snapshot"), 2);
    page.pass(1);
    assert_eq!(page.count("replay") + page.count("snapshot"), 3, "{:?}", page.said);
}

#[test]
fn a_thousand_events_are_held() {
    let mut page = Page::live();
    (7..1_007).for_each(|seq| page.event(seq));
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (1_000, 0));
    assert_eq!(page.client.held_bytes(), 1_000);
    page.event(1_007);
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (1_000, 1));
    // What fits is never refused, and what was dropped is covered by the snapshot that is asked for.
    page.answers(page.job, Some(page.asked), E, 1_007);
    assert_eq!((page.client.held(page.job), page.client.held_bytes()), (0, 0));
    assert_eq!(page.sync(), Sync::Live);
}

#[test]
fn a_mebibyte_is_held() {
    let mut page = Page::live();
    page.weighs(7, 1 << 19);
    page.weighs(8, 1 << 19);
    assert_eq!((page.client.held(page.job), page.client.held_bytes()), (2, 1 << 20));
    page.weighs(9, 1);
    assert_eq!((page.client.held(page.job), page.client.held_bytes()), (2, (1 << 19) + 1));
}

#[test]
fn sixteen_mebibytes_are_held_over_all_and_the_largest_pays() {
    let mut page = Page::live();
    let others: Vec<EntityId> = (0..17).map(|_| page.another()).collect();
    page.weighs(7, 9);
    for &id in &others[..16] {
        page.gives(id, 7, EventId::NONE, (1 << 20) - 9, Status::NONE);
    }
    page.gives(others[15], 8, EventId::NONE, 9, Status::NONE);
    assert_eq!(page.client.held_bytes(), (16 << 20) - 126);
    page.gives(others[16], 7, EventId::NONE, 126, Status::NONE);
    assert_eq!((page.client.held_bytes(), page.client.stats().overflowed), (16 << 20, 0));
    page.gives(others[16], 8, EventId::NONE, 1, Status::NONE);
    assert_eq!(page.client.stats().overflowed, 1);
    assert_eq!((page.client.held(page.job), page.client.held(others[16])), (1, 2));
    assert_eq!(page.client.held(others[15]), 1, "it had the most");
}

#[test]
fn a_hundred_thousand_ahead_is_believable() {
    let mut page = Page::live();
    // The event covers 100,005 and lies behind 100,000 others that are missing.
    page.event(100_006);
    assert_eq!((page.count("far ahead"), page.client.held(page.job)), (0, 1));
    page.event(100_007);
    assert_eq!((page.count("far ahead"), page.client.held(page.job)), (1, 1));
    let asked = page.count("snapshot");
    page.pass(29_999);
    page.event(100_007);
    page.pass(1);
    page.event(100_007);
    assert_eq!(page.count("far ahead"), 3);
    assert!(asked >= 1);

    let mut page = Page::live();
    page.client.handle_head(page.now, page.job, E, 100_005, None);
    page.drain();
    page.pass(100);
    assert_eq!(page.count("replay"), 1);
    let mut page = Page::live();
    page.client.handle_head(page.now, page.job, E, 100_006, None);
    page.drain();
    page.pass(100);
    assert_eq!(page.count("replay"), 0);
}

#[test]
fn twenty_bad_frames_end_a_socket() {
    let mut page = Page::live();
    for _ in 0..19 {
        page.client.handle_bad_frame(page.now);
    }
    page.drain();
    assert_eq!(page.count("give up on frames"), 0);
    page.client.handle_bad_frame(page.now);
    page.drain();
    assert_eq!((page.count("give up on frames"), page.sync()), (1, Sync::Stale));
    // They are counted per socket.
    page.pass(600);
    page.welcome(None, ALL);
    for _ in 0..19 {
        page.client.handle_bad_frame(page.now);
    }
    page.drain();
    assert_eq!(page.count("give up on frames"), 1);
}

#[test]
fn sixteen_entities_ask_at_a_time() {
    let mut page = Page::live();
    let others: Vec<EntityId> = (0..17).map(|_| page.another()).collect();
    for &id in &others {
        page.gives(id, 7, EventId::NONE, 1, Status::NONE);
    }
    page.pass(100);
    assert_eq!((page.client.requests_out(), page.client.stats().replays), (16, 16));
    let first = others.iter().find(|id| page.client.sync(**id) == Sync::Recovering).copied().expect("one that asks");
    page.gives(first, 6, EventId::NONE, 1, Status::NONE);
    page.pass(0);
    assert_eq!((page.client.requests_out(), page.client.stats().replays), (16, 17));
}

#[test]
fn thirty_two_ids_are_remembered() {
    for (more, forks) in [(31, 1), (32, 0)] {
        let mut page = Page::live();
        page.gives(page.job, 6, EventId(1), 1, Status::NONE);
        for seq in 7..7 + more {
            page.gives(page.job, seq, EventId(seq), 1, Status::NONE);
        }
        page.gives(page.job, 6, EventId(2), 1, Status::NONE);
        assert_eq!(page.count("diverged"), forks, "{more} later");
    }
}

#[test]
fn a_fork_asks_once_a_minute() {
    let mut page = Page::live();
    let fork = |page: &mut Page, wait: u64, asked: usize| {
        page.pass(wait);
        page.gives(page.job, 5, EventId(7), 1, Status::NONE);
        let at = page.client.position(page.job).expect("a position").seq + 1;
        page.gives(page.job, at, EventId(at), 1, Status::NONE);
        page.gives(page.job, at, EventId(at + 1_000), 1, Status::NONE);
        assert_eq!(page.count("snapshot"), asked, "after {wait}: {:?}", page.said);
        if asked > 0 {
            let request = page.asked;
            page.answers(page.job, Some(request), E, at);
        }
    };
    fork(&mut page, 0, 1);
    fork(&mut page, 59_999, 1);
    fork(&mut page, 1, 2);
}

#[test]
fn pings_come_every_twenty_five_seconds_where_nothing_is_promised() {
    let mut page = Page::live();
    for round in 1..=3 {
        page.pass(25_000);
        assert_eq!(page.count("ping"), round);
        assert_eq!(page.when("ping")[round - 1], 25_000 * round as u64);
    }
    page.pongs = false;
    page.pass(29_999);
    assert_eq!((page.count("ping"), page.count("replace")), (4, 0));
    // Another one's pong saves nobody.
    page.client.handle_pong(page.now, page.ping + 1);
    page.pass(1);
    // Stable before: dialed again at once.
    assert_eq!((page.when("replace"), page.when("dial")), (vec![105_000], vec![105_000]));
}

#[test]
fn two_silent_heartbeats_make_a_socket_suspect() {
    // Promises are clamped to 5 to 60 s.
    for (promised, silence) in [(20_000, 40_000), (1_000, 10_000), (600_000, 120_000)] {
        let mut page = Page::live_with(Config::default(), Model::default(), Some(promised), ALL);
        page.pongs = false;
        page.pass(silence - 1);
        assert_eq!(page.count("ping"), 0, "{promised}");
        page.client.handle_heard(page.now);
        page.pass(silence - 1);
        assert_eq!(page.count("ping"), 0, "{promised}");
        page.pass(1);
        assert_eq!(page.count("ping"), 1, "{promised}");
        page.pass(4_999);
        assert_eq!(page.count("replace"), 0, "{promised}");
        page.pass(1);
        assert_eq!(page.count("replace"), 1, "{promised}");
    }
}

#[test]
fn dials_are_spread_and_wait_longer_each_time_up_to_twenty_seconds() {
    let mut page = Page::dialed();
    let mut bound = 500;
    for _ in 0..12 {
        page.ends(1006);
        let wait = page.client.retry_at().expect("a dial is armed").0 - page.now.0;
        assert!((100..=bound).contains(&wait), "{wait} of {bound}");
        bound = (bound * 2).min(20_000);
        page.pass(wait - 1);
        let dials = page.count("dial");
        page.pass(1);
        assert_eq!(page.count("dial"), dials + 1);
    }
}

#[test]
fn five_seconds_of_stability_reset_the_waits() {
    for (lasted, most) in [(4_999, 20_000), (5_000, 500)] {
        let mut page = Page::dialed();
        let fails = |page: &mut Page| {
            page.ends(1006);
            let wait = page.client.retry_at().expect("a dial is armed").0 - page.now.0;
            page.pass(wait);
            wait
        };
        (0..8).for_each(|_| {
            fails(&mut page);
        });
        page.welcome(None, ALL);
        page.pass(lasted);
        let waits: Vec<u64> = (0..20).map(|_| fails(&mut page)).collect();
        let first = waits[..2].iter().max().copied().unwrap_or(0);
        assert_eq!(first <= 1_000, most == 500, "{waits:?} after {lasted}");
    }
}

#[test]
fn retry_after_is_kept_up_to_five_minutes() {
    for (said, kept) in [(2_700, 2_700), (300_000, 300_000), (900_000, 300_000)] {
        let mut page = Page::live();
        page.client.handle_goodbye(page.now, Some(said));
        page.ends(1012);
        let wait = page.client.retry_at().expect("armed").0 - page.now.0;
        assert!((kept..=kept + 500).contains(&wait), "{wait} for {said}");
        // Nothing shortens it.
        page.client.handle_online(page.now);
        page.client.handle_visible(page.now);
        page.drain();
        page.pass(kept - 1);
        assert_eq!(page.count("dial"), 0);
        page.pass(501);
        assert_eq!(page.count("dial"), 1);
    }
}

#[test]
fn page_events_shorten_a_wait_at_most_once_in_five_seconds() {
    let mut page = Page::dialed();
    let fails = |page: &mut Page| {
        page.ends(1006);
        for _ in 0..20 {
            if page.client.retry_at().is_some_and(|at| at.0 > page.now.0 + 6_000) {
                return;
            }
            page.pass(20_000);
            page.ends(1006);
        }
    };
    fails(&mut page);
    let dials = page.count("dial");
    page.client.handle_online(page.now);
    page.drain();
    page.pass(100);
    assert_eq!(page.count("dial"), dials + 1, "online dials");
    page.ends(1006);
    page.client.handle_visible(page.now);
    page.drain();
    page.pass(0);
    assert_eq!(page.count("dial"), dials + 1, "but not twice at once");
    page.pass(20_000);
    fails(&mut page);
    let dials = page.count("dial");
    page.client.handle_pageshow(page.now);
    page.drain();
    page.pass(100);
    assert_eq!(page.count("dial"), dials + 1, "pageshow dials");
}

#[test]
fn a_hidden_page_that_is_kept_closes_and_dials_when_it_is_shown() {
    let mut page = Page::live();
    page.pass(10_000);
    page.client.handle_pagehide(page.now);
    page.drain();
    assert_eq!((page.count("replace") + page.count("close"), page.sync()), (1, Sync::Stale), "{:?}", page.said);
    page.pass(600_000);
    page.client.handle_pageshow(page.now);
    page.drain();
    page.pass(100);
    assert_eq!(page.count("dial"), 1);
}

#[test]
fn a_late_timer_probes_instead_of_firing_all() {
    let mut page = Page::live();
    page.event(7);
    page.pass(100);
    // The replay's deadline is 3 s away; the page sleeps until 2,001 ms after it.
    for (late, asked, probes) in [(2_000, 1, 0), (2_001, 0, 1)] {
        let mut page = page_at(&page);
        page.now = page.now + 3_000 + late;
        page.client.handle_timeout(page.now);
        page.drain();
        assert_eq!((page.count("replay"), page.count("ping")), (asked, probes), "{late} ms late");
    }
}

fn page_at(page: &Page) -> Page {
    Page { client: page.client.clone(), said: Vec::new(), whom: Vec::new(), resumes: Vec::new(), ..*page }
}

#[test]
fn nobody_is_left_a_second_before_unsubscribe() {
    let mut page = Page::live();
    page.client.unsubscribe(page.now, page.job);
    page.drain();
    page.pass(999);
    assert_eq!((page.count("unsubscribe"), page.count("forgotten")), (0, 0));
    page.pass(1);
    assert_eq!((page.when("unsubscribe"), page.when("forgotten")), (vec![1_000], vec![1_000]));
}

#[test]
fn quiet_entities_are_checked_every_thirty_seconds_where_heads_are_not_to_be_had() {
    let mut page = Page::live_with(Config::default(), Model::default(), Some(60_000), Can { heads: false, ..ALL });
    // It was heard of within the first thirty.
    page.pass(59_999);
    assert_eq!(page.count("snapshot"), 0);
    page.pass(1);
    assert_eq!(page.when("snapshot"), [60_000]);
    page.answer(5);
    page.pass(59_999);
    assert_eq!(page.count("snapshot"), 1);
    page.pass(1);
    assert_eq!(page.when("snapshot"), [60_000, 120_000]);
}

#[test]
fn what_counts_nothing_is_never_vacant() {
    let model = Model { continuity: Continuity::None, ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    let before = page.client.position(page.job);
    page.client.handle_vacant(page.now, page.job, E, 6, 9);
    page.drain();
    assert_eq!(page.client.position(page.job), before);
}

#[test]
fn four_thousand_and_ninety_six_ends_are_remembered() {
    let mut page = Page::live();
    let ends = |page: &mut Page| {
        let id = page.another();
        page.gives(id, 6, EventId::NONE, 1, COMPLETED);
        page.client.unsubscribe(page.now, id);
        page.pass(1_000);
    };
    for _ in 0..4_096 {
        ends(&mut page);
        page.said.retain(|(_, word)| *word == "forgotten");
    }
    assert_eq!(page.count("forgotten"), 0);
    ends(&mut page);
    assert_eq!(page.count("forgotten"), 1);
}

/// The largest usable number is usable wherever a number comes.
#[test]
fn the_largest_number_is_usable() {
    const LAST: u64 = (1 << 53) - 1;
    let chain = Model { continuity: Continuity::Prev, ..Model::default() };
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    page.client.handle_vacant(page.now, page.job, E, 6, LAST);
    page.drain();
    assert_eq!(page.client.position(page.job).map(|at| at.seq), Some(LAST));
    let mut page = Page::live();
    page.answers(page.job, None, E, LAST);
    assert_eq!(page.client.position(page.job).map(|at| at.seq), Some(LAST));
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    page.client.handle_head(page.now, page.job, E, LAST, None);
    page.drain();
    page.pass(100);
    assert_eq!((page.count("bad frame"), page.count("snapshot")), (0, 1));
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    page.reconnects();
    for (head, bad) in [(LAST + 1, 1), (LAST + 2, 2), (LAST, 2)] {
        page.client.handle_subscribed(page.now, page.job, page.asked, E, head);
        page.drain();
        assert_eq!(page.count("bad frame"), bad, "{head}");
    }
}

#[test]
fn two_hundred_and_fifty_six_models_fit() {
    let mut page = Page::new(Config::default(), Model::default());
    let models: Vec<ModelId> = (1..258).map(|_| page.client.add_model(Model::default())).collect();
    assert_eq!(models[..255], (1..256).map(|at| ModelId(at as u8)).collect::<Vec<_>>());
    assert_eq!(models[255..], [ModelId(255); 2], "the others share the last");
}

#[test]
fn nobody_is_wanted_who_was_never_added_or_after_the_end() {
    let stranger = EntityId(999);
    let mut page = Page::live();
    let other = page.client.add_entity(page.model);
    page.client.subscribe(page.now, stranger);
    page.client.add_member(page.now, stranger, page.job);
    page.client.add_member(page.now, other, stranger);
    page.client.lock(page.now, stranger);
    page.drain();
    assert!(!page.client.is_wanted(stranger) && !page.client.is_final(stranger));
    assert!(!page.client.is_wanted(other) && page.said.is_empty(), "{:?}", page.said);
    // Who is not wanted can't be left.
    page.client.unsubscribe(page.now, other);
    page.client.unsubscribe(page.now, stranger);
    page.drain();
    page.pass(2_000);
    assert_eq!(page.said, []);

    page.client.close(page.now);
    page.drain();
    assert_eq!(page.count("close"), 1);
    page.said.clear();
    page.client.close(page.now);
    page.client.connect(page.now);
    page.client.subscribe(page.now, other);
    page.client.add_member(page.now, page.job, other);
    page.client.unsubscribe(page.now, page.job);
    page.client.handle_online(page.now);
    page.client.handle_pagehide(page.now);
    page.event(6);
    page.client.handle_timeout(page.now + 100_000);
    page.drain();
    assert_eq!((page.said.len(), page.client.poll_timeout()), (0, None), "{:?}", page.said);
    assert!(!page.client.is_wanted(other) && page.client.is_wanted(page.job));
}

#[test]
fn who_is_released_is_forgotten_at_once_and_who_is_wanted_is_not() {
    let mut page = Page::live();
    page.client.release(page.now, page.job);
    page.drain();
    assert!(page.client.is_wanted(page.job) && page.said.is_empty());
    page.client.unsubscribe(page.now, page.job);
    page.client.release(page.now, page.job);
    page.drain();
    assert_eq!((page.when("unsubscribe"), page.when("forgotten")), (vec![0], vec![0]));
    page.client.release(page.now, page.job);
    page.drain();
    assert_eq!(page.count("forgotten"), 1, "nobody is forgotten twice");
    // A final one too, on a socket that was told of it and without one.
    for open in [true, false] {
        let mut page = Page::live();
        page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
        if !open {
            page.ends(1006);
        }
        page.client.unsubscribe(page.now, page.job);
        page.client.release(page.now, page.job);
        page.drain();
        assert_eq!((page.count("unsubscribe"), page.count("forgotten")), (usize::from(open), 1), "{open}");
        assert!(!page.client.is_final(page.job));
    }
}

/// Each part of a snapshot that a subscription brings gives it five seconds more, and as many tries as at first.
#[test]
fn a_part_starts_the_deadline_of_a_subscription_again() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    page.pass(4_999);
    assert!(page.client.handle_part(page.now, page.job, Some(page.asked)));
    page.pass(4_999);
    assert_eq!(page.when("subscribe"), [0]);
    page.pass(1 + 5_000 + 5_000 + 5_000);
    assert_eq!(page.when("subscribe"), [0, 9_999, 14_999, 19_999, 24_999]);
    assert!(page.client.handle_part(page.now, page.job, Some(page.asked)));
    page.pass(4_999 + 1 + 5_000);
    assert_eq!((page.count("subscribe"), page.count("gave up")), (7, 0));
    assert!(page.client.handle_part(page.now, page.job, Some(page.asked)));
    page.answer(5);
    let pings = page.count("ping");
    page.pass(10_000);
    assert_eq!((page.count("ping"), page.sync()), (pings, Sync::Live), "nobody waits for it any more");
}

#[test]
fn who_is_joined_again_after_its_end_stays_ended() {
    const FAILED: Status = Status(3);
    for (epoch, status, shown) in [(E, COMPLETED, 1), (E, FAILED, 0), (Epoch(2), COMPLETED, 0), (Epoch(2), FAILED, 0)] {
        let mut page = Page::live();
        page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
        page.client.unsubscribe(page.now, page.job);
        page.drain();
        page.pass(1_000);
        page.client.subscribe(page.now, page.job);
        page.drain();
        assert_eq!((page.sync(), page.client.status(page.job)), (Sync::Joining, Status::NONE));
        page.said.clear();
        page.client.handle_final(page.now, page.job, page.asked, epoch, status, None);
        page.drain();
        assert_eq!((page.count("change"), page.sync()), (shown, Sync::Final), "{epoch:?} {status:?}");
        assert_eq!(page.client.status(page.job), COMPLETED);
        assert_eq!(page.client.position(page.job).map(|at| (at.epoch, at.seq)), Some((E, 6)));
    }
}

#[test]
fn who_is_not_named_among_the_heads_is_asked_for() {
    let mut page = Page::live();
    page.client.handle_discontinuity(page.now, None);
    page.drain();
    assert_eq!((page.count("heads"), page.count("snapshot"), page.sync()), (1, 0, Sync::Recovering));
    page.client.end_heads(page.now, page.asked + 1);
    page.drain();
    assert_eq!(page.count("snapshot"), 0, "that was another's");
    page.client.end_heads(page.now, page.asked);
    page.drain();
    assert_eq!((page.when("snapshot"), page.sync()), (vec![0], Sync::Recovering));
}

#[test]
fn an_error_to_a_request_that_is_not_ours_means_nothing() {
    let mut page = Page::live();
    page.client.handle_error(page.now, ErrorCode::Other, Some(77), Some(page.job), None);
    page.client.handle_error(page.now, ErrorCode::Forbidden, Some(77), None, None);
    page.drain();
    assert_eq!((page.count("server"), page.sync()), (0, Sync::Live));
    page.client.handle_error(page.now, ErrorCode::Other, None, Some(page.job), None);
    page.drain();
    assert_eq!((page.count("server"), page.sync()), (1, Sync::Recovering));
}

#[test]
fn a_page_that_went_offline_probes_its_socket_at_once_and_once() {
    let mut page = Page::live();
    page.pongs = false;
    page.client.handle_offline(page.now);
    page.drain();
    page.pass(0);
    assert_eq!((page.when("ping"), page.ping), (vec![0], 1));
    page.client.handle_offline(page.now);
    assert!(page.client.poll_timeout() > Some(page.now), "a ping is out already");
    page.client.handle_pong(page.now, 1);
    page.client.handle_offline(page.now);
    page.pass(0);
    assert_eq!((page.count("ping"), page.ping), (2, 2), "the next ping is another");
}

#[test]
fn a_resume_is_confirmed_by_its_last_page() {
    let mut page = Page::live();
    page.reconnects();
    let request = page.asked;
    for (seq, done, sync) in [(6, false, Sync::Recovering), (7, true, Sync::Live)] {
        assert!(page.client.begin_replay(page.now, page.job, request));
        page.event(seq);
        page.client.end_replay(page.now, page.job, request, done);
        page.drain();
        assert_eq!(page.sync(), sync, "{seq}");
    }
    assert_eq!(page.client.epochs_in_use(), [E], "nothing else is remembered of it");
}

#[test]
fn distance_means_nothing_in_a_chain_or_where_the_newest_wins() {
    let chain = Model { continuity: Continuity::Prev, ..Model::default() };
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    page.client.handle_event(page.now, page.job, Event { prev: Some(200_000), ..plain(200_001) }, ());
    page.drain();
    assert_eq!((page.count("far ahead"), page.client.held(page.job)), (0, 1));
    let skip = Model { on_gap: Some(OnGap::Skip), ..Model::default() };
    let mut page = Page::live_with(Config::default(), skip, None, ALL);
    page.event(200_001);
    assert_eq!((page.count("far ahead"), page.client.position(page.job).map(|at| at.seq)), (0, Some(200_001)));
}

#[test]
fn an_end_that_is_remembered_says_nothing_more() {
    let mut page = Page::live();
    page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
    for _ in 0..2 {
        page.client.unsubscribe(page.now, page.job);
        page.drain();
        page.pass(1_000);
        page.client.subscribe(page.now, page.job);
        page.drain();
    }
    page.client.unsubscribe(page.now, page.job);
    page.drain();
    page.pass(1_000);
    let generation = page.client.current();
    page.client.handle_closed(page.now, generation, 1006);
    while let Some(output) = page.client.poll_output(page.now) {
        assert!(!matches!(output, Output::Sync { .. } | Output::Final { .. }), "{output:?}");
    }
}

#[test]
fn after_a_number_that_nobody_believes_the_next_event_goes_the_short_way_again() {
    let mut page = Page::live();
    page.event(200_000);
    assert_eq!(page.client.accept(page.job, 5, 6, E, Status::NONE, true), Verdict::Slow);
    page.answer(5);
    assert_eq!(page.client.accept(page.job, 5, 6, E, Status::NONE, true), Verdict::Apply);
}

fn with_tokens() -> Config {
    Config { get_token: true, ..Config::default() }
}

#[test]
fn a_token_has_fifteen_seconds_and_comes_too_late_after_them() {
    let mut page = Page::new(with_tokens(), Model::default());
    let before = page.client.connection();
    page.client.subscribe(page.now, page.job);
    page.drain();
    assert_eq!((page.when("token"), page.client.connection()), (vec![0], before), "nothing was dialed yet");
    page.pass(14_999);
    assert_eq!(page.count("cancel token"), 0);
    page.pass(1);
    assert_eq!((page.when("cancel token"), page.when("token failed")), (vec![15_000], vec![15_000]));
    page.pass(500);
    assert_eq!((page.count("token"), page.count("dial")), (2, 0));
    page.client.handle_token(page.now, 1, true);
    page.drain();
    assert_eq!(page.count("dial"), 0, "that call was given up");
    page.client.handle_token(page.now, 2, true);
    page.drain();
    assert_eq!((page.count("dial"), page.count("token failed")), (1, 1));
    page.client.handle_token(page.now, 2, false);
    page.drain();
    assert_eq!(page.count("token failed"), 1, "it was answered before");
}

#[test]
fn a_token_that_is_refreshed_belongs_to_its_socket() {
    let expires = |page: &mut Page| {
        page.client.handle_error(page.now, ErrorCode::TokenExpiring, None, None, None);
        page.drain();
    };
    let mut page = Page::live();
    expires(&mut page);
    page.ends(1006);
    assert_eq!((page.count("token"), page.count("cancel token")), (0, 0), "nobody fetches tokens");
    for answered in [false, true] {
        let mut page = Page::new(with_tokens(), Model::default());
        page.client.subscribe(page.now, page.job);
        page.drain();
        page.client.handle_token(page.now, 1, true);
        page.drain();
        page.welcome(None, ALL);
        expires(&mut page);
        expires(&mut page);
        assert_eq!(page.count("token"), 2, "one call at a time");
        if answered {
            page.client.handle_token(page.now, 2, true);
            page.drain();
        }
        page.ends(1006);
        assert_eq!(page.count("cancel token"), usize::from(!answered));
    }
}

#[test]
fn a_refused_token_is_fetched_at_once_and_used_after_a_tenth_of_a_second() {
    for (wait, dials) in [(99, 1), (100, 2)] {
        let mut page = Page::new(with_tokens(), Model::default());
        page.client.subscribe(page.now, page.job);
        page.drain();
        page.client.handle_token(page.now, 1, true);
        page.drain();
        page.welcome(None, ALL);
        page.ends(4401);
        assert_eq!(page.when("token"), [0, 0]);
        page.now = page.now + wait;
        page.client.handle_token(page.now, 2, true);
        page.drain();
        assert_eq!(page.count("dial"), dials, "{wait}");
        page.pass(100 - wait);
        assert_eq!(page.count("dial"), 2, "{wait}");
    }
}

#[test]
fn a_wait_that_is_asked_for_changes_no_deadline_of_a_dial() {
    let mut page = Page::dialed();
    let generation = page.client.current();
    page.client.handle_opened(page.now, generation);
    page.client.handle_goodbye(page.now, Some(60_000));
    page.drain();
    page.pass(15_000);
    assert_eq!((page.when("replace"), page.count("dial")), (vec![15_000], 1));
    // Nor is it forgotten, if it is the last thing that was heard.
    page.client.handle_goodbye(page.now, Some(70_000));
    assert_eq!(page.client.retry_at(), Some(Instant(START + 85_000)));
    page.pass(69_999);
    assert_eq!(page.count("dial"), 1);
    page.now = page.now + 1;
    page.client.handle_online(page.now);
    page.drain();
    assert_eq!(page.when("dial"), [0, 85_000]);
}

#[test]
fn five_seconds_after_a_page_event_another_one_shortens_the_wait() {
    let config = Config {
        backoff: Backoff { min: 60_000, base: 60_000, cap: 60_000, ..Config::default().backoff },
        ..Config::default()
    };
    let mut page = Page::live_with(config, Model::default(), None, ALL);
    for (wait, dials) in [(0, 1), (4_999, 1), (1, 2)] {
        if page.client.retry_at().is_none() {
            page.ends(1006);
        }
        page.pass(wait);
        page.client.handle_online(page.now);
        page.drain();
        assert_eq!(page.count("dial"), dials, "after {wait}");
    }
}

#[test]
fn a_page_without_a_socket_has_none_to_close() {
    let mut page = Page::live();
    page.ends(1006);
    page.client.handle_pagehide(page.now);
    for _ in 0..20 {
        page.client.handle_bad_frame(page.now);
    }
    page.drain();
    assert_eq!((page.count("replace"), page.count("give up on frames")), (0, 0));
    page.client.close(page.now);
    page.drain();
    assert_eq!(page.count("close"), 0);
}

/// Deadlines that passed while the page slept prove nothing: they begin anew, behind a probe.
#[test]
fn a_page_that_slept_gives_its_socket_another_chance() {
    // While it dials.
    let mut page = Page::dialed();
    page.sleeps(40_000);
    assert_eq!(page.count("replace"), 0);
    page.pass(14_999);
    assert_eq!(page.count("replace"), 0);
    page.pass(1);
    assert_eq!(page.when("replace"), [55_000]);
    // While it waits to dial: that is due.
    page.sleeps(40_000);
    assert_eq!(page.when("dial"), [0, 95_000]);
    // While it waits for a token.
    let mut page = Page::new(with_tokens(), Model::default());
    page.client.subscribe(page.now, page.job);
    page.drain();
    page.sleeps(40_000);
    page.pass(14_999);
    assert_eq!(page.count("cancel token"), 0);
    page.pass(1);
    assert_eq!(page.when("cancel token"), [55_000]);
    // While a heartbeat is due, and a pong.
    let mut page = Page::live_with(Config::default(), Model::default(), Some(20_000), ALL);
    page.pongs = false;
    page.sleeps(60_000);
    assert_eq!((page.when("ping"), page.count("replace")), (vec![60_000], 0));
    page.sleeps(60_000);
    page.pass(4_999);
    assert_eq!((page.count("ping"), page.count("replace")), (1, 0));
    page.pass(1);
    assert_eq!(page.when("replace"), [125_000]);
    // While a ping is due.
    let mut page = Page::live();
    page.sleeps(40_000);
    page.pass(24_999);
    assert_eq!(page.when("ping"), [40_000], "the probe serves");
    page.pass(1);
    assert_eq!(page.when("ping"), [40_000, 65_000]);
}

#[test]
fn who_is_refused_stays_refused_until_it_is_subscribed_anew() {
    for code in [ErrorCode::Forbidden, ErrorCode::NotFound] {
        let mut page = Page::live();
        page.client.handle_error(page.now, code, None, Some(page.job), None);
        page.drain();
        assert_eq!(page.sync(), Sync::Failed);
        page.reconnects();
        page.event(6);
        page.pass(100_000);
        assert_eq!((page.count("subscribe"), page.count("snapshot"), page.sync()), (0, 0, Sync::Failed));
        page.client.unsubscribe(page.now, page.job);
        page.client.subscribe(page.now, page.job);
        page.drain();
        assert_eq!(page.count("subscribe"), 1);
        page.answer(9);
        assert_eq!(page.sync(), Sync::Live);
    }
}

#[test]
fn a_subscription_is_given_up_after_five_tries() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    page.pass(24_999);
    assert_eq!((page.count("subscribe"), page.count("gave up")), (5, 0));
    page.pass(1);
    assert_eq!((page.count("subscribe"), page.when("gave up"), page.sync()), (5, vec![25_000], Sync::Failed));
    page.pass(30_000);
    assert_eq!(page.count("subscribe"), 6, "and asked for again half a minute later");
}

/// R18, R23: nor does a new epoch that is pushed answer it.
#[test]
fn a_subscription_that_was_given_up_is_asked_for_again_whatever_is_pushed() {
    let mut page = Page::live();
    page.reconnects();
    page.said.clear();
    while page.sync() != Sync::Failed {
        page.pass(1);
    }
    assert_eq!(page.count("subscribe"), 4);
    page.pass(10_000);
    page.answers(page.job, None, F, 1);
    assert_eq!((page.seq(), page.sync()), (Some(1), Sync::Failed));
    page.pass(19_999);
    assert_eq!(page.count("subscribe"), 4);
    page.pass(1);
    assert_eq!(page.count("subscribe"), 5);
    page.answers(page.job, Some(page.asked), F, 3);
    assert_eq!((page.seq(), page.sync()), (Some(3), Sync::Live));
}

#[test]
fn many_subscriptions_share_a_frame_and_a_retry_has_its_own() {
    let mut page = Page::dialed();
    let others: Vec<EntityId> = (0..2).map(|_| page.client.add_entity(page.model)).collect();
    others.iter().for_each(|&id| page.client.subscribe(page.now, id));
    page.welcome(None, ALL);
    assert_eq!((page.count("subscribe"), page.resumes.len()), (1, 3));
    let first = page.asked;
    page.now = page.now + 5_000;
    page.client.handle_timeout(page.now);
    let late = page.client.add_entity(page.model);
    page.client.subscribe(page.now, late);
    page.drain();
    assert_eq!(page.count("subscribe"), 3);
    assert_eq!((page.resumes.len(), page.resumes[0].entity), (1, late), "who is new is asked for under a new request");
    assert_ne!(page.asked, first);
}

#[test]
fn four_thousand_and_ninety_six_questions_are_out_at_a_time() {
    let mut page = Page::live();
    let mut first = None;
    for _ in 0..4_097 {
        let id = page.client.add_entity(page.model);
        page.client.subscribe(page.now, id);
        page.drain();
        first.get_or_insert((id, page.asked));
    }
    assert_eq!(page.count("subscribe"), 4_096);
    let (id, request) = first.expect("the first");
    page.answers(id, Some(request), E, 5);
    assert_eq!(page.count("subscribe"), 4_097);
    page.drain();
    assert_eq!(page.count("subscribe"), 4_097, "each is asked for once");
}

#[test]
fn who_is_refused_before_it_is_asked_for_again_is_not() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    page.now = page.now + 5_000;
    page.client.handle_timeout(page.now);
    page.client.handle_error(page.now, ErrorCode::Forbidden, None, Some(page.job), None);
    page.drain();
    assert_eq!((page.count("subscribe"), page.sync()), (1, Sync::Failed));
}

#[test]
fn who_leaves_as_its_socket_ends_says_nothing() {
    let mut page = Page::live();
    page.client.unsubscribe(page.now, page.job);
    page.now = page.now + 1_000;
    page.client.handle_timeout(page.now);
    page.ends(1006);
    assert_eq!((page.count("unsubscribe"), page.count("forgotten")), (0, 1));
}

/// R20: fewest tries first, new replays before snapshots, and of equals who has waited longest.
#[test]
fn slots_go_to_who_tried_least() {
    let config = Config { max_requests: 1, ..Config::default() };
    let mut page = Page::live_with(config, Model::default(), None, Can { heads: false, ..ALL });
    let a = page.job;
    let [b, c, d, e] = [(); 4].map(|()| page.another());
    page.said.clear();
    let ahead = |page: &mut Page, id| page.gives(id, 7, EventId::NONE, 1, Status::NONE);
    let fills = |page: &mut Page, id| page.gives(id, 6, EventId::NONE, 1, Status::NONE);
    ahead(&mut page, a);
    ahead(&mut page, b);
    page.pass(100);
    page.client.handle_discontinuity(page.now, Some(c));
    page.drain();
    ahead(&mut page, d);
    page.pass(100);
    assert_eq!(page.whom, [a]);
    fills(&mut page, a);
    assert_eq!(page.whom, [a, b], "both are new");
    fills(&mut page, b);
    assert_eq!(page.whom, [a, b, d], "what is a first try goes before a snapshot");
    page.pass(100);
    ahead(&mut page, e);
    page.pass(2_900);
    assert_eq!(page.whom, [a, b, d, e], "a first try before a second");
    fills(&mut page, e);
    assert_eq!(page.whom, [a, b, d, e, d], "a second try before a snapshot");
    page.pass(3_000);
    assert_eq!(page.whom, [a, b, d, e, d, c], "of two snapshots the one that waits longer");
}

/// R21: the routine question of a reconciliation is not shown; one that has a reason is.
#[test]
fn a_reconciliation_is_not_shown_unless_there_is_a_doubt() {
    for doubted in [false, true] {
        let mut page = Page::live_with(Config::default(), Model::default(), Some(60_000), Can { heads: false, ..ALL });
        page.pass(30_000);
        if doubted {
            page.client.handle_head(page.now, page.job, F, 9, None);
            page.drain();
        } else {
            page.pass(30_000);
        }
        assert_eq!(page.count("snapshot"), 1);
        assert_eq!(page.sync(), if doubted { Sync::Recovering } else { Sync::Live });
    }
}

/// A keep-alive of a chain names the number that its owner stands at.
#[test]
fn a_keep_alive_shows_what_is_missing() {
    let chain = Model { continuity: Continuity::Prev, ..Model::default() };
    let alive = |page: &mut Page, epoch, seq| {
        let event = Event { epoch, prev: Some(seq), has_data: false, ..plain(seq) };
        page.client.handle_event(page.now, page.job, event, ());
        page.drain();
        page.pass(100);
    };
    for (epoch, seq, asked) in [(E, 4, 0), (E, 5, 0), (E, 6, 1), (F, 5, 1)] {
        let mut page = Page::live_with(Config::default(), chain, None, ALL);
        alive(&mut page, epoch, seq);
        assert_eq!((page.count("snapshot"), page.seq()), (asked, Some(5)), "{epoch:?} {seq}");
    }
    // It is no answer, and settles no doubt about the number where we stand.
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    for _ in 0..2 {
        page.client.handle_discontinuity(page.now, None);
        page.drain();
        page.client.handle_head(page.now, page.job, E, 3, Some(page.asked));
        page.drain();
        page.pass(1_000);
        page.answer(3);
        alive(&mut page, E, 5);
    }
    page.pass(2_000);
    page.answer(3);
    assert_eq!(page.seq(), Some(3), "the server has said so often enough");
    // Who has no position, or an end, hears nothing in it.
    let mut page = Page::new(Config::default(), chain);
    page.client.subscribe(page.now, page.job);
    page.drain();
    page.welcome(None, ALL);
    alive(&mut page, E, 9);
    assert_eq!((page.count("snapshot"), page.sync()), (0, Sync::Joining));
    let mut page = Page::live_with(Config::default(), chain, None, ALL);
    page.answers(page.job, None, E, 6);
    page.client.lock(page.now, page.job);
    page.drain();
    alive(&mut page, F, 9);
    assert_eq!((page.count("snapshot"), page.sync()), (0, Sync::Final));
}

/// R36: three faults in a row without progress are enough; progress starts the count anew.
#[test]
fn faults_are_counted_until_there_is_progress() {
    let mut page = Page::live();
    for (spoilt, faults) in [(6, 2), (9, 2), (12, 3)] {
        page.spoilt = spoilt;
        let at = page.seq().expect("a position");
        (at + 1..=spoilt).for_each(|seq| page.event(seq));
        for _ in 1..faults {
            page.pass(2_500);
            page.answer(spoilt - 1);
        }
        if faults < 3 {
            page.spoilt = 0;
            page.pass(2_500);
            page.answer(spoilt - 1);
            assert_eq!((page.seq(), page.sync(), page.count("gave up")), (Some(spoilt), Sync::Live, 0));
        }
    }
    assert_eq!((page.count("rollback"), page.count("gave up"), page.sync()), (7, 1, Sync::Failed));
    // What can't be reduced stays held, and is not tried again before the position has passed it.
    page.pass(31_000);
    page.answer(11);
    assert_eq!((page.count("rollback"), page.sync(), page.client.held(page.job)), (7, Sync::Failed, 1));
    page.pass(31_000);
    page.answer(12);
    assert_eq!((page.sync(), page.seq(), page.client.held(page.job)), (Sync::Live, Some(12), 0));
}

#[test]
fn a_snapshot_that_could_not_be_reduced_leaves_its_number_and_its_epoch_in_doubt() {
    // Its number exists: what comes before it is asked for when a lower one was reduced.
    let mut page = Page::live();
    page.rejects = true;
    page.answers(page.job, None, E, 9);
    assert_eq!((page.seq(), page.count("rollback")), (Some(5), 1));
    assert_eq!(page.client.epochs_in_use(), [E, Epoch(0), E], "nothing is said against its own epoch");
    page.rejects = false;
    page.answer(7);
    page.pass(100);
    assert_eq!((page.seq(), page.count("replay")), (Some(7), 1));
    // Of another epoch it says nothing about ours.
    let mut page = Page::live();
    page.rejects = true;
    page.answers(page.job, None, F, 9);
    assert_eq!(page.client.epochs_in_use(), [E, Epoch(0), F], "nor for the other, of which nothing is held");
    page.rejects = false;
    page.answer(7);
    page.pass(100);
    assert_eq!((page.seq(), page.count("replay"), page.sync()), (Some(7), 0, Sync::Live));
    // What is held of the other is under suspicion again.
    let mut page = Page::live();
    page.of_epoch(F, 10);
    page.rejects = true;
    page.answers(page.job, Some(page.asked), F, 9);
    assert_eq!(page.client.epochs_in_use(), [E, Epoch(0), F, F]);
    // Of who joins, nothing was ever shown.
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    page.rejects = true;
    page.answer(5);
    assert_eq!((page.sync(), page.seq()), (Sync::Joining, None));
}

#[test]
fn where_numbers_mean_nothing_a_change_that_fails_asks_for_no_numbers() {
    let model = Model { continuity: Continuity::None, ..Model::default() };
    let mut page = Page::new(Config::default(), model);
    assert_eq!(page.sync(), Sync::Joining);
    page.client.subscribe(page.now, page.job);
    page.drain();
    page.welcome(None, ALL);
    page.answer(5);
    page.spoilt = 9;
    page.event(9);
    assert_eq!((page.count("rollback"), page.seq(), page.client.held(page.job)), (1, Some(5), 0));
    page.answer(5);
    page.pass(200);
    assert_eq!((page.sync(), page.count("replay"), page.count("gap")), (Sync::Live, 0, 0));
    // Nor do heads help where continuity was lost.
    page.client.handle_discontinuity(page.now, None);
    page.drain();
    assert_eq!((page.count("heads"), page.count("snapshot")), (0, 2));
}

/// R36, where no number has to be passed: what a snapshot says next is progress.
#[test]
fn where_numbers_mean_nothing_the_next_answer_ends_what_was_given_up() {
    let model = Model { continuity: Continuity::None, ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    page.spoilt = 9;
    for gave_up in [0, 0, 1] {
        page.event(9);
        assert_eq!(page.count("gave up"), gave_up);
    }
    assert_eq!((page.count("rollback"), page.sync()), (3, Sync::Failed));
    page.pass(31_000);
    page.answer(5);
    assert_eq!((page.seq(), page.sync()), (Some(5), Sync::Live));
}

#[test]
fn after_the_end_a_number_raises_the_position_up_to_a_hundred_thousand() {
    let mut page = Page::live();
    page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
    for (seq, at) in [(7, 7), (100_008, 7), (100_007, 100_007), (9, 100_007)] {
        page.event(seq);
        assert_eq!(page.seq(), Some(at), "{seq}");
    }
}

/// R22: what `subscribed` says counts as much as an answer.
#[test]
fn a_head_that_is_too_low_three_times_is_believed() {
    let mut page = Page::live();
    for _ in 0..3 {
        page.reconnects();
        page.subscribed(3);
        assert_eq!(page.sync(), Sync::Recovering);
    }
    page.pass(4_000);
    page.answer(3);
    assert_eq!((page.seq(), page.sync()), (Some(3), Sync::Live));
}

/// R6 and R22: what is told anew after a reset is new, whatever its id.
#[test]
fn ids_are_forgotten_where_the_server_went_back() {
    let mut page = Page::live();
    page.gives(page.job, 6, EventId(1), 1, Status::NONE);
    for _ in 0..3 {
        page.reconnects();
        page.subscribed(5);
    }
    page.pass(4_000);
    page.answer(5);
    assert_eq!(page.seq(), Some(5));
    let shown = page.count("change");
    page.gives(page.job, 6, EventId(1), 1, Status::NONE);
    assert_eq!((page.seq(), page.count("change")), (Some(6), shown + 1));
}

/// R7 and R8: a final entity that may be reopened asks about a retired epoch too.
#[test]
fn a_final_entity_that_may_be_reopened_asks_when_a_retired_epoch_is_named() {
    let model = Model { reopen: Reopen::Epoch, ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    page.answers(page.job, None, F, 1);
    let end = Event { epoch: F, status: COMPLETED, ..plain(2) };
    page.client.handle_event(page.now, page.job, end, ());
    page.drain();
    assert_eq!((page.sync(), page.count("snapshot")), (Sync::Final, 0));
    page.client.handle_head(page.now, page.job, E, 9, None);
    page.drain();
    page.pass(1_000);
    assert_eq!(page.count("snapshot"), 1);
}

/// R19: what was dropped while a replay delivers is asked for behind it, and costs no snapshot.
#[test]
fn what_memory_took_is_asked_for_behind_the_replay() {
    let mut page = Page::live();
    let others = [(); 16].map(|()| page.another());
    page.said.clear();
    page.weighs(8, 1 << 20);
    page.pass(100);
    let request = page.asked;
    assert!(page.client.begin_replay(page.now, page.job, request));
    for id in others {
        page.client.handle_event(page.now, id, Event { bytes: (1 << 20) - 1, ..plain(7) }, ());
    }
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (0, 1));
    for seq in [6, 7] {
        page.client.handle_event(page.now, page.job, plain(seq), ());
    }
    page.client.end_replay(page.now, page.job, request, true);
    page.drain();
    assert_eq!(page.seq(), Some(7));
    page.whom.clear();
    page.pass(100);
    assert_eq!((page.whom.contains(&page.job), page.count("snapshot")), (true, 0));
}

#[test]
fn memory_is_freed_until_it_suffices() {
    let mut page = Page::live();
    let others = [(); 16].map(|()| page.another());
    for seq in 7..1_007 {
        page.weighs(seq, 1_048);
    }
    for &id in &others[..15] {
        page.gives(id, 7, EventId::NONE, 1_047_900, Status::NONE);
    }
    page.gives(others[15], 7, EventId::NONE, 1_047_000, Status::NONE);
    assert!(page.client.held_bytes() <= 16 << 20, "{}", page.client.held_bytes());
    assert_eq!(page.client.held(others[15]), 1);
}

/// While a resume is unanswered what lies farthest is dropped: what comes before it is on its way.
#[test]
fn a_full_buffer_keeps_what_comes_first_while_a_resume_is_out() {
    let mut page = Page::live();
    page.reconnects();
    page.said.clear();
    (7..1_008).for_each(|seq| page.event(seq));
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (1_000, 1));
    let request = page.asked;
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.event(6);
    page.event(1_007);
    page.client.end_replay(page.now, page.job, request, true);
    page.drain();
    assert_eq!((page.seq(), page.sync(), page.count("snapshot")), (Some(1_007), Sync::Live, 0));
    // A suspect that was dropped says nothing about our numbers.
    let mut config = Config::default();
    config.gap.max_events = 1;
    let mut page = Page::live_with(config, Model::default(), None, ALL);
    page.reconnects();
    page.of_epoch(F, 50);
    page.event(7);
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (1, 1));
    let request = page.asked;
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.event(6);
    page.client.end_replay(page.now, page.job, request, true);
    page.drain();
    assert_eq!((page.seq(), page.count("snapshot")), (Some(7), 1));
    page.answer(7);
    page.pass(200);
    assert_eq!((page.sync(), page.count("replay")), (Sync::Live, 0));
}

#[test]
fn nothing_is_asked_before_the_welcome_says_what_can_be() {
    let mut page = Page::live();
    page.ends(1006);
    let at = page.client.retry_at().expect("a dial is armed");
    page.pass(at.0 - page.now.0);
    let generation = page.client.current();
    page.client.handle_opened(page.now, generation);
    page.drain();
    page.subscribed(5);
    page.client.handle_discontinuity(page.now, None);
    page.event(7);
    page.pass(200);
    page.client.handle_welcome(page.now, None, ALL);
    page.drain();
    page.pass(100);
    assert_eq!((page.count("replay"), page.count("snapshot"), page.count("heads")), (1, 0, 0));
}

#[test]
fn a_doubt_costs_nothing_where_an_answer_is_awaited_or_the_end_is_known() {
    let can = Can { heads: false, ..ALL };
    let mut page = Page::live_with(Config::default(), Model::default(), None, can);
    page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
    page.client.handle_discontinuity(page.now, None);
    page.drain();
    page.pass(1_000);
    assert_eq!(page.count("snapshot"), 0, "it is final");
    let mut page = Page::live_with(Config::default(), Model::default(), None, can);
    page.ends(1006);
    let at = page.client.retry_at().expect("a dial is armed");
    page.pass(at.0 - page.now.0);
    page.welcome(None, can);
    page.client.handle_discontinuity(page.now, Some(page.job));
    page.subscribed(5);
    assert_eq!((page.count("snapshot"), page.sync()), (0, Sync::Live), "its resume is answered");
    // Asked for twice, it is named once.
    let mut page = Page::live();
    page.client.handle_discontinuity(page.now, None);
    page.client.handle_discontinuity(page.now, Some(page.job));
    page.drain();
    assert_eq!(page.count("heads"), 1);
    assert_eq!(page.client.accept(page.job, 5, 6, E, Status::NONE, true), Verdict::Slow, "while a head is awaited");
}

/// Every way to be cared for, and none.
#[test]
fn everybody_is_cared_for_once_the_outputs_are_done() {
    let mut page = Page::live();
    let nobody = page.client.add_entity(page.model);
    assert!(page.client.is_cared_for(page.job) && page.client.is_cared_for(nobody));
    page.event(7);
    page.pass(100);
    page.client.handle_gone(page.now, page.job, page.asked);
    assert_eq!(page.client.requests_out(), 0, "a slot is held only while a request is out");
    page.drain();
    assert!(page.client.is_cared_for(page.job));
    let stale = Snapshot { request: Some(page.asked), epoch: E, seq: 3, status: RUNNING };
    page.client.handle_snapshot(page.now, page.job, stale, ());
    assert!(!page.client.is_cared_for(page.job), "it is to be asked for");
    page.drain();
    assert!(page.client.is_cared_for(page.job));
    let other = page.another();
    page.client.handle_error(page.now, ErrorCode::Forbidden, None, Some(page.job), None);
    page.gives(other, 6, EventId::NONE, 1, COMPLETED);
    assert!(page.client.is_cared_for(page.job) && page.client.is_cared_for(other));
}

#[test]
fn an_answer_to_a_replay_is_no_snapshot_unless_it_is_a_resume() {
    let mut page = Page::live();
    page.event(7);
    page.pass(100);
    page.answers(page.job, Some(page.asked), E, 9);
    assert_eq!((page.seq(), page.client.stats().unwanted), (Some(5), 1));
    let mut page = Page::live();
    page.reconnects();
    assert!(page.client.begin_replay(page.now, page.job, page.asked));
    page.client.end_replay(page.now, page.job, page.asked, false);
    page.drain();
    page.answers(page.job, Some(page.asked + 7), E, 9);
    assert_eq!((page.seq(), page.client.stats().unwanted), (Some(5), 1));
    page.answer(9);
    assert_eq!((page.seq(), page.sync()), (Some(9), Sync::Live));
}

/// R31: what is remembered of an end is the floor, whatever the answer says.
#[test]
fn the_floor_of_an_end_holds() {
    let table = [
        (Reopen::Never, E, 6, COMPLETED, 1, Sync::Final, E, 6),
        (Reopen::Never, E, 4, COMPLETED, 1, Sync::Final, E, 6),
        (Reopen::Never, E, 9, COMPLETED, 1, Sync::Final, E, 9),
        (Reopen::Never, E, 6, RUNNING, 0, Sync::Final, E, 6),
        (Reopen::Never, E, 9, RUNNING, 0, Sync::Final, E, 6),
        (Reopen::Never, F, 9, RUNNING, 0, Sync::Final, E, 6),
        (Reopen::Never, F, 3, COMPLETED, 0, Sync::Final, E, 6),
        (Reopen::Epoch, E, 9, RUNNING, 0, Sync::Final, E, 6),
        (Reopen::Epoch, F, 1, RUNNING, 1, Sync::Live, F, 1),
    ];
    for (reopen, epoch, seq, status, shown, sync, own, last) in table {
        let mut page = Page::live_with(Config::default(), Model { reopen, ..Model::default() }, None, ALL);
        page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
        page.client.unsubscribe(page.now, page.job);
        page.drain();
        page.pass(1_000);
        page.client.subscribe(page.now, page.job);
        page.drain();
        page.said.clear();
        let snapshot = Snapshot { request: Some(page.asked), epoch, seq, status };
        page.client.handle_snapshot(page.now, page.job, snapshot, ());
        page.drain();
        let at = page.client.position(page.job).map(|at| (at.epoch, at.seq));
        let about = format!("{reopen:?} {epoch:?} {seq} {status:?}");
        assert_eq!((page.count("change"), page.sync(), at), (shown, sync, Some((own, last))), "{about}");
    }
    // An older answer that says that it goes on is a failed try; the third is enough.
    let mut page = Page::live();
    page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
    page.client.unsubscribe(page.now, page.job);
    page.drain();
    page.pass(1_000);
    page.client.subscribe(page.now, page.job);
    page.drain();
    for tried in 1..=3 {
        assert_eq!(page.sync(), Sync::Joining, "{tried}");
        page.answer(4);
        page.pass(2_000);
    }
    assert_eq!((page.sync(), page.seq(), page.client.stats().stale), (Sync::Final, Some(6), 3));
}

#[test]
fn an_older_answer_to_a_resume_is_a_failed_try() {
    let mut page = Page::live();
    page.reconnects();
    page.answer(3);
    assert_eq!((page.count("snapshot"), page.seq()), (1, Some(5)));
}

#[test]
fn a_gap_is_reported_once() {
    let mut page = Page::live();
    page.event(21);
    page.answers(page.job, None, E, 9);
    assert_eq!((page.count("gap"), page.seq()), (1, Some(9)), "what is left of it is no other");
    page.answers(page.job, None, E, 20);
    page.event(30);
    assert_eq!((page.count("gap"), page.seq()), (2, Some(21)));
}

#[test]
fn who_was_given_up_and_is_told_of_a_new_epoch_recovers() {
    for failed_before in [false, true] {
        let mut page = Page::live();
        if failed_before {
            page.of_epoch(F, 9);
            page.spoilt = 6;
            page.event(6);
            page.answer(6);
            assert_eq!((page.count("rollback"), page.seq(), page.sync()), (1, Some(6), Sync::Live));
        }
        page.of_epoch(F, 9);
        page.pass(60_000);
        assert_eq!((page.count("gave up"), page.sync()), (1, Sync::Failed));
        page.answers(page.job, None, F, 5);
        assert_ne!(page.sync(), Sync::Failed);
        page.pass(100);
        assert_eq!((page.sync(), page.count("replay")), (Sync::Recovering, 1));
    }
}

/// A number that voids what was before it ends what was asked about that, and nothing of what brings it.
#[test]
fn a_reset_ends_the_questions_before_it() {
    let model = Model { reset_seq: Some(1), ..Model::default() };
    let resets = |page: &mut Page| {
        let snapshot = Snapshot { request: None, epoch: E, seq: 1, status: RUNNING };
        page.client.handle_snapshot(page.now, page.job, snapshot, ());
        page.event(4);
        assert_eq!((page.seq(), page.client.held(page.job)), (Some(1), 1));
    };
    for (wait, replays) in [(50, vec![150]), (100, vec![100, 200])] {
        let mut page = Page::live_with(Config::default(), model, None, ALL);
        page.event(9);
        page.pass(wait);
        resets(&mut page);
        page.pass(200);
        assert_eq!(page.when("replay"), replays);
    }
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    page.reconnects();
    let request = page.asked;
    for (first, done, sync) in [(1, false, Sync::Recovering), (3, true, Sync::Live)] {
        assert!(page.client.begin_replay(page.now, page.job, request));
        page.event(first);
        page.event(first + 1);
        page.client.end_replay(page.now, page.job, request, done);
        page.drain();
        assert_eq!((page.seq(), page.sync()), (Some(first + 1), sync));
    }
}

#[test]
fn a_snapshot_that_does_not_come_probes_the_socket() {
    let mut page = Page::live();
    page.client.handle_head(page.now, page.job, F, 9, None);
    page.drain();
    page.pass(4_999);
    assert_eq!((page.when("snapshot"), page.count("ping")), (vec![0], 0));
    page.pass(1);
    assert_eq!(page.when("ping"), [5_000]);
}

#[test]
fn an_error_is_followed_by_the_same_question() {
    // To a snapshot.
    let mut page = Page::live();
    page.client.handle_head(page.now, page.job, F, 9, None);
    page.drain();
    page.fails(Some(page.asked));
    page.pass(31_000);
    assert!(page.count("replay") == 0 && page.count("snapshot") > 1, "{:?}", page.said);
    // To nothing that was asked: the grace begins anew.
    let mut page = Page::live();
    page.event(7);
    page.pass(50);
    page.fails(None);
    page.pass(3_000);
    assert_eq!(page.when("replay"), [2_150]);
}

#[test]
fn a_replay_that_is_gone_late_leaves_the_snapshot_that_is_out() {
    let mut page = Page::live();
    page.event(7);
    page.pass(100);
    let request = page.asked;
    page.pass(6_000);
    assert_eq!(page.when("snapshot"), [6_100]);
    page.client.handle_gone(page.now, page.job, request);
    page.drain();
    page.pass(2_000);
    assert_eq!(page.count("snapshot"), 1);
}

#[test]
fn after_a_sleep_each_question_has_its_whole_time_again() {
    for (kind, wait) in [("replay", 3_000), ("snapshot", 5_000)] {
        let mut page = Page::live();
        if kind == "replay" {
            page.event(7);
            page.pass(100);
        } else {
            page.client.handle_head(page.now, page.job, F, 9, None);
            page.drain();
        }
        page.sleeps(60_000);
        let before = page.said.len();
        page.pass(wait - 1);
        assert_eq!(page.said.len(), before, "{kind}: {:?}", page.said);
        page.pass(10_000);
        assert!(page.said.len() > before, "{kind}");
    }
}

/// A topic that is live at (E, 5), and those of its members.
struct Topic {
    page: Page,
    topic: EntityId,
}

impl Topic {
    fn live() -> Topic {
        let mut page = Page::live();
        let model = page.client.add_model(Model { topic: true, ..Model::default() });
        let topic = page.another_of(model);
        Topic { page, topic }
    }

    fn adds(&mut self) -> EntityId {
        let member = self.page.client.add_entity(self.page.model);
        self.page.client.add_member(self.page.now, self.topic, member);
        self.page.drain();
        member
    }

    /// A member that is live at (E, 5).
    fn member(&mut self) -> EntityId {
        let member = self.adds();
        self.page.answers(member, None, E, 5);
        self.page.client.handle_subscribed(self.page.now, member, self.page.asked, E, 5);
        self.page.drain();
        assert_eq!(self.page.client.sync(member), Sync::Live);
        member
    }

    /// What its resume says: whether there is a cursor, and who is named behind it.
    fn resumes(&mut self) -> (bool, Vec<EntityId>) {
        self.page.reconnects();
        let resume = self.page.resumes.iter().find(|resume| resume.entity == self.topic).expect("the topic resumes");
        (resume.cursor, resume.behind.iter().map(|(member, _)| *member).collect())
    }
}

#[test]
fn a_topic_without_a_cursor_names_all_its_members_and_with_one_who_is_behind() {
    let mut of = Topic::live();
    let [one, ended] = [(); 2].map(|()| of.member());
    let page = &mut of.page;
    page.gives(ended, 6, EventId::NONE, 1, COMPLETED);
    assert_eq!(of.resumes(), (false, vec![one]), "who is final is not resumed");
    let page = &mut of.page;
    page.answers(of.topic, Some(page.asked), E, 5);
    page.answers(one, Some(page.asked), E, 5);
    page.client.handle_cursor(page.now, of.topic);
    page.drain();
    assert_eq!(of.resumes(), (true, vec![]));
}

#[test]
fn a_final_member_that_may_be_reopened_is_named() {
    let mut of = Topic::live();
    of.page.model = of.page.client.add_model(Model { reopen: Reopen::Epoch, ..Model::default() });
    let ended = of.member();
    of.page.gives(ended, 6, EventId::NONE, 1, COMPLETED);
    assert_eq!(of.resumes(), (false, vec![ended]));
}

#[test]
fn a_member_waits_five_seconds_from_when_it_was_first_named() {
    let mut of = Topic::live();
    let member = of.adds();
    of.page.said.clear();
    of.page.pass(3_000);
    let model = of.page.client.add_model(Model { topic: true, ..Model::default() });
    let second = of.page.client.add_entity(model);
    of.page.client.subscribe(of.page.now, second);
    of.page.drain();
    of.page.answers(second, Some(of.page.asked), E, 5);
    of.page.client.add_member(of.page.now, second, member);
    of.page.drain();
    of.page.pass(1_999);
    assert_eq!(of.page.count("snapshot"), 0);
    of.page.pass(1);
    assert_eq!((of.page.when("snapshot"), of.page.count("ping")), (vec![5_000], 0), "which says nothing of the socket");
}

#[test]
fn who_is_live_or_final_waits_for_no_topic() {
    let mut of = Topic::live();
    let page = &mut of.page;
    let job = page.job;
    page.client.add_member(page.now, of.topic, job);
    page.drain();
    assert_eq!(page.sync(), Sync::Live, "it has a subscription of its own");
    let ended = page.another();
    page.gives(ended, 6, EventId::NONE, 1, COMPLETED);
    let before = page.client.poll_timeout();
    page.client.add_member(page.now, of.topic, ended);
    page.drain();
    assert_eq!(page.client.poll_timeout(), before);
    let member = of.member();
    let page = &mut of.page;
    page.gives(member, 6, EventId::NONE, 1, COMPLETED);
    page.client.remove_member(page.now, of.topic, member);
    page.client.add_member(page.now, of.topic, member);
    page.drain();
    page.pass(1_000);
    assert!(page.client.poll_timeout() > Some(page.now + 10_000), "nothing but the next ping is due");
}

#[test]
fn who_leaves_one_of_two_topics_stays_live() {
    let mut of = Topic::live();
    let member = of.member();
    let page = &mut of.page;
    let model = page.client.add_model(Model { topic: true, ..Model::default() });
    let second = page.another_of(model);
    page.client.add_member(page.now, second, member);
    page.client.subscribe(page.now, member);
    page.drain();
    page.said.clear();
    page.client.remove_member(page.now, of.topic, member);
    page.drain();
    assert_eq!((page.client.sync(member), page.count("subscribe")), (Sync::Live, 0));
    page.client.remove_member(page.now, second, member);
    page.drain();
    assert_eq!(page.count("subscribe"), 1, "nothing else covers it");
}

/// The wait after an error ends with it: what follows is a question of its own.
#[test]
fn who_leaves_its_topic_while_it_waits_after_an_error_is_asked_for_at_once() {
    for live in [false, true] {
        let mut of = Topic::live();
        let member = if live { of.member() } else { of.adds() };
        let page = &mut of.page;
        page.client.subscribe(page.now, member);
        page.drain();
        page.client.handle_error(page.now, ErrorCode::Other, None, Some(member), None);
        page.drain();
        page.said.clear();
        page.client.remove_member(page.now, of.topic, member);
        page.drain();
        assert_eq!(page.count("subscribe"), 1);
        if live {
            page.client.handle_gone(page.now, member, page.asked);
            page.drain();
            assert_eq!(page.count("snapshot"), 1);
        } else {
            page.pass(4_999);
            assert_eq!(page.count("subscribe"), 1);
        }
    }
}

/// R16: what is held behind a hole that a replay left is shown when a snapshot closes it.
#[test]
fn what_is_held_outlives_a_replay_that_left_a_hole() {
    let mut page = Page::live();
    page.reconnects();
    page.event(8);
    assert!(page.client.begin_replay(page.now, page.job, page.asked));
    page.client.handle_event(page.now, page.job, plain(6), ());
    page.client.end_replay(page.now, page.job, page.asked, true);
    page.drain();
    assert_eq!((page.count("snapshot"), page.seq(), page.client.held(page.job)), (1, Some(6), 1));
    page.answer(7);
    assert_eq!((page.seq(), page.sync()), (Some(8), Sync::Live));
}

#[test]
fn where_numbers_mean_nothing_a_subscription_may_be_answered_without_a_snapshot() {
    let mut page = Page::new(Config::default(), Model { continuity: Continuity::None, ..Model::default() });
    page.client.subscribe(page.now, page.job);
    page.drain();
    page.welcome(None, ALL);
    page.subscribed(0);
    assert_eq!(page.sync(), Sync::Live);
    page.client.unsubscribe(page.now, page.job);
    page.client.subscribe(page.now, page.job);
    page.drain();
    assert_eq!((page.count("snapshot"), page.count("subscribe"), page.sync()), (0, 1, Sync::Live));
}

/// R22: a heartbeat is no answer, so that it settles no doubt about the number where we stand.
#[test]
fn a_heartbeat_settles_no_doubt() {
    let mut page = Page::live();
    page.reconnects();
    page.subscribed(3);
    for _ in 0..3 {
        page.pass(4_000);
        page.client.handle_head(page.now, page.job, E, 5, None);
        page.drain();
        page.answer(3);
    }
    assert_eq!(page.seq(), Some(3), "the server has said so often enough");
}

#[test]
fn a_member_that_comes_back_within_its_linger_is_awaited() {
    let mut of = Topic::live();
    let member = of.member();
    let page = &mut of.page;
    page.client.remove_member(page.now, of.topic, member);
    page.drain();
    page.pass(500);
    page.client.add_member(page.now, of.topic, member);
    page.drain();
    assert_eq!(page.client.sync(member), Sync::Recovering, "what came meanwhile was not sent to us");
    page.said.clear();
    page.pass(5_000);
    assert_eq!((page.count("heads"), page.count("forgotten")), (1, 0));
}

#[test]
fn a_ping_that_is_not_due_keeps_its_time_when_the_page_wakes() {
    for (asleep, next) in [(2_000, 50_000), (60_000, 110_000)] {
        let mut page = Page::live();
        page.pongs = false;
        page.pass(25_000);
        page.now = page.now + asleep;
        page.client.handle_wake(page.now);
        page.client.handle_timeout(page.now);
        page.drain();
        page.client.handle_pong(page.now, page.ping);
        page.pass(next - 25_000 - asleep);
        assert_eq!(page.when("ping"), [25_000, next]);
    }
}

/// R8: with the end all suspicions end, too.
#[test]
fn after_the_end_no_other_epoch_is_asked_about() {
    let mut page = Page::live();
    page.of_epoch(F, 9);
    assert_eq!(page.count("snapshot"), 1);
    page.gives(page.job, 6, EventId::NONE, 1, COMPLETED);
    page.pass(20_000);
    assert_eq!((page.count("snapshot"), page.sync(), page.client.requests_out()), (1, Sync::Final, 0));
}

/// R36, while there is nothing to go back to.
#[test]
fn three_snapshots_that_fail_are_enough_for_who_joins() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    page.rejects = true;
    for gave_up in [0, 0, 1] {
        page.answer(5);
        assert_eq!(page.count("gave up"), gave_up);
        page.pass(2_500);
    }
    assert_eq!((page.count("rollback"), page.sync()), (3, Sync::Failed));
}

/// Who has no position has no number to ask from.
#[test]
fn an_error_within_the_pages_of_a_join_is_followed_by_a_snapshot() {
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    let request = page.asked;
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.client.end_replay(page.now, page.job, request, false);
    page.drain();
    page.fails(Some(request));
    page.pass(4_000);
    assert_eq!((page.count("replay"), page.count("snapshot")), (0, 2));
}

/// An event that came before its snapshot asks for that after the grace, whoever else comes meanwhile.
#[test]
fn a_member_whose_snapshot_was_overtaken_waits_no_longer_for_others() {
    let mut of = Topic::live();
    let [overtaken, other] = [(); 2].map(|()| of.adds());
    let page = &mut of.page;
    page.said.clear();
    for id in [overtaken, other] {
        page.gives(id, 7, EventId::NONE, 1, Status::NONE);
    }
    page.pass(50);
    page.answers(other, None, E, 7);
    page.pass(49);
    assert_eq!(page.count("snapshot"), 0);
    page.pass(1);
    assert_eq!((page.when("snapshot"), page.whom.last()), (vec![100], Some(&overtaken)));
}

/// R36, R19: what fits is not applied then, so it is held, and counts.
#[test]
fn behind_what_can_not_be_reduced_no_more_is_held_than_anywhere() {
    let mut config = Config::default();
    config.gap.max_events = 2;
    let mut page = Page::live_with(config.clone(), Model::default(), None, ALL);
    page.spoilt = 6;
    page.event(6);
    // Faults alone hold nothing up: what comes after them is tried.
    for faults in 2..=3 {
        page.pass(2_500);
        page.answer(5);
        assert_eq!(page.count("rollback"), faults);
    }
    assert_eq!((page.sync(), page.client.held(page.job)), (Sync::Failed, 1));
    page.event(8);
    page.event(7);
    assert_eq!((page.client.held(page.job), page.client.stats().overflowed), (2, 1));
    page.spoilt = 0;
    page.pass(31_000);
    page.answer(6);
    page.event(7);
    assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(8), Sync::Live, 0));
    // Also what comes next, before the number that could not be reduced.
    config.gap.max_events = 1;
    let mut page = Page::new(config, Model::default());
    page.client.subscribe(page.now, page.job);
    page.drain();
    page.welcome(None, ALL);
    page.rejects = true;
    for _ in 0..3 {
        page.answer(5);
        page.pass(2_500);
    }
    page.rejects = false;
    page.answers(page.job, None, E, 1);
    for (seq, overflowed) in [(3, 0), (2, 1)] {
        page.event(seq);
        assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(1), Sync::Failed, 1));
        assert_eq!(page.client.stats().overflowed, overflowed);
    }
}

/// Just given up behind a gap up to 9.
fn failed() -> Page {
    let mut page = Page::live();
    page.event(10);
    while page.sync() != Sync::Failed {
        page.pass(1);
    }
    page.said.clear();
    page
}

/// What is pushed answers nothing (R18): whoever named the missing numbers is believed until an answer comes.
#[test]
fn a_snapshot_that_is_pushed_neither_ends_nor_delays_what_was_given_up() {
    let mut page = failed();
    page.pass(20_000);
    page.answers(page.job, None, E, 7);
    assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(7), Sync::Failed, 1));
    page.answers(page.job, None, E, 7);
    assert_eq!((page.sync(), page.client.held(page.job)), (Sync::Failed, 1));
    page.pass(9_999);
    assert_eq!(page.count("snapshot"), 0);
    page.pass(1);
    assert_eq!((page.count("gave up"), page.count("replay"), page.count("snapshot")), (0, 0, 1));
    // The answer says that the number does not exist.
    page.answer(7);
    assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(7), Sync::Live, 0));
    // Nor does one that leaves nothing missing: more may be.
    let mut page = failed();
    page.answers(page.job, None, E, 9);
    assert_eq!((page.seq(), page.sync()), (Some(10), Sync::Failed));
    page.pass(30_000);
    page.answer(10);
    assert_eq!((page.sync(), page.count("snapshot")), (Sync::Live, 1));
    // One of another epoch does: what was missing belongs to a history that is over.
    let mut page = failed();
    page.answers(page.job, None, F, 1);
    assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(1), Sync::Live, 0));
}

/// R36: what could not be reduced belongs to its epoch.
#[test]
fn faults_of_an_epoch_that_is_over_count_no_more() {
    let gives_up = |epoch| {
        let mut page = Page::dialed();
        page.welcome(None, ALL);
        page.rejects = true;
        for _ in 0..3 {
            page.answer(5);
            page.pass(2_500);
        }
        assert_eq!(page.sync(), Sync::Failed);
        page.rejects = false;
        page.pass(31_000);
        page.answers(page.job, Some(page.asked), epoch, 1);
        (page.seq(), page.sync())
    };
    assert_eq!(gives_up(F), (Some(1), Sync::Live));
    assert_eq!(gives_up(E), (Some(1), Sync::Failed), "5 exists, and only it leads past the fault");
}

/// What a replay brought that counts only as a whole is of no use when the rest is not wanted any more.
#[test]
fn pages_of_a_replay_that_was_given_up_are_not_kept() {
    let model = Model { replay_whole: true, ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    let replays = |page: &mut Page, seqs: &[u64]| {
        page.event(10);
        page.pass(100);
        let request = page.asked;
        assert!(page.client.begin_replay(page.now, page.job, request));
        seqs.iter().for_each(|&seq| page.event(seq));
        request
    };
    // Between two pages.
    let request = replays(&mut page, &[6, 7]);
    page.client.end_replay(page.now, page.job, request, false);
    page.drain();
    assert_eq!((page.seq(), page.client.held(page.job)), (Some(5), 3));
    page.answers(page.job, None, E, 12);
    assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(12), Sync::Live, 0));
    // Within a page.
    for done in [false, true] {
        let mut page = Page::live_with(Config::default(), model, None, ALL);
        let request = replays(&mut page, &[6, 7]);
        page.answers(page.job, None, E, 12);
        assert_eq!(page.client.held(page.job), 2, "the page is being read");
        page.client.end_replay(page.now, page.job, request, done);
        page.drain();
        assert_eq!((page.seq(), page.sync(), page.client.held(page.job)), (Some(12), Sync::Live, 0), "{done}");
    }
}

/// R18: an older state that is pushed ends no question about what is missing.
#[test]
fn what_is_pushed_ends_neither_a_wait_before_a_snapshot_nor_a_resume() {
    // Asked in vain on the socket before, so the next question waits; then pushed.
    let mut page = Page::live();
    page.client.handle_discontinuity(page.now, None);
    page.drain();
    page.pass(5_000);
    assert_eq!((page.count("heads"), page.count("snapshot")), (1, 1));
    page.reconnects();
    page.said.clear();
    page.client.handle_gone(page.now, page.job, page.asked);
    page.drain();
    page.answers(page.job, None, E, 6);
    page.answers(page.job, None, E, 6);
    assert_eq!((page.seq(), page.sync(), page.count("snapshot")), (Some(6), Sync::Recovering, 0));
    page.pass(1_000);
    page.answer(9);
    assert_eq!((page.seq(), page.sync(), page.count("snapshot")), (Some(9), Sync::Live, 1));
    // Pages that stopped are asked for again, and only they confirm the position (R30).
    let mut page = Page::live();
    page.reconnects();
    let request = page.asked;
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.client.end_replay(page.now, page.job, request, false);
    page.drain();
    page.pass(3_000);
    assert_eq!(page.count("replay"), 1);
    page.answers(page.job, None, E, 5);
    assert_eq!(page.sync(), Sync::Recovering);
    assert!(page.client.begin_replay(page.now, page.job, request));
    page.client.end_replay(page.now, page.job, request, true);
    page.drain();
    assert_eq!((page.sync(), page.count("snapshot")), (Sync::Live, 0));
}

/// R36, R5: what was taken back voids nothing, the ids of what was applied included.
#[test]
fn a_reset_that_could_not_be_reduced_leaves_the_ids_of_what_was_applied() {
    let model = Model { reset_seq: Some(1), ..Model::default() };
    let known = |page: &mut Page| {
        page.said.clear();
        page.gives(page.job, 6, EventId(66), 1, Status::NONE);
        assert_eq!((page.seq(), page.count("change")), (Some(6), 1));
        page.said.clear();
    };
    let repeats = |page: &mut Page| {
        page.spoilt = 0;
        page.rejects = false;
        page.answer(6);
        page.said.clear();
        page.gives(page.job, 7, EventId(66), 1, Status::NONE);
        assert_eq!((page.seq(), page.count("change")), (Some(7), 0), "it was applied as 6");
    };
    // An event that voids what was before it.
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    known(&mut page);
    page.spoilt = 1;
    page.gives(page.job, 1, EventId(67), 1, Status::NONE);
    assert_eq!((page.count("rollback"), page.seq()), (1, Some(6)));
    repeats(&mut page);
    // A snapshot that does.
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    known(&mut page);
    page.rejects = true;
    page.answers(page.job, None, E, 1);
    assert_eq!((page.count("rollback"), page.seq()), (1, Some(6)));
    repeats(&mut page);
    // A snapshot of the number that was applied under that id.
    let mut page = Page::live();
    known(&mut page);
    page.spoilt = 7;
    page.event(7);
    page.rejects = true;
    page.answer(6);
    assert_eq!((page.count("rollback"), page.seq()), (2, Some(6)));
    page.pass(1_000);
    repeats(&mut page);
    // Nothing is kept for others, whichever way their events take.
    for is_fast in [false, true] {
        let mut page = Page::live_with(Config::default(), model, None, ALL);
        let plain_model = page.client.add_model(Model::default());
        let other = page.another_of(plain_model);
        known(&mut page);
        page.gives(page.job, 1, EventId(67), 1, Status::NONE);
        if is_fast {
            assert_eq!(page.client.accept(other, 5, 6, E, Status::NONE, true), Verdict::Apply);
            page.client.rollback(page.now, other, Some((plain(6), ())));
            page.drain();
        } else {
            page.spoilt = 6;
            page.gives(other, 6, EventId(68), 1, Status::NONE);
            page.spoilt = 0;
        }
        page.answers(other, Some(page.asked), E, 6);
        page.said.clear();
        page.gives(other, 7, EventId(66), 1, Status::NONE);
        assert_eq!(page.count("change"), 1, "of that id it had none");
    }
}

/// R5: the number that voids what was before it is applied once, too.
#[test]
fn an_event_that_resets_and_comes_twice_resets_once() {
    let model = Model { reset_seq: Some(1), ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    for (seq, id, at, resets) in [(1, 7, 1, 1), (2, 8, 2, 1), (1, 7, 2, 1), (1, 9, 1, 2), (1, 0, 1, 3), (1, 0, 1, 4)] {
        page.gives(page.job, seq, EventId(id), 1, Status::NONE);
        assert_eq!((page.seq(), page.client.stats().resets), (Some(at), resets), "{seq} under {id}");
    }
}

/// R12: a vacancy begins right behind the position, so it is its width that must be believable.
#[test]
fn a_vacancy_of_more_than_a_hundred_thousand_numbers_poisons_nothing() {
    let vacant = |page: &mut Page, to| {
        page.client.handle_vacant(page.now, page.job, E, 6, to);
        page.drain();
    };
    let mut page = Page::live();
    vacant(&mut page, 100_005);
    assert_eq!((page.seq(), page.count("far ahead")), (Some(100_005), 0));
    let mut page = Page::live();
    vacant(&mut page, 100_006);
    assert_eq!((page.seq(), page.count("far ahead"), page.count("snapshot")), (Some(5), 1, 1));
    page.answer(5);
    page.event(6);
    assert_eq!((page.seq(), page.sync()), (Some(6), Sync::Live));
    // Nor is it held for who has no position yet.
    let mut page = Page::dialed();
    page.welcome(None, ALL);
    vacant(&mut page, (1 << 53) - 1);
    page.answer(5);
    page.event(6);
    assert_eq!((page.seq(), page.client.held(page.job)), (Some(6), 0));
    // Where the newest wins, numbers are not measured.
    let model = Model { on_gap: Some(OnGap::Skip), ..Model::default() };
    let mut page = Page::live_with(Config::default(), model, None, ALL);
    vacant(&mut page, 100_006);
    assert_eq!(page.count("far ahead"), 0);
}
