//! Times to the millisecond and limits to the last one: what the protocol's page promises in its section 13.

use inorder::Client;
use inorder::client::{
    Can, Command, EntityId, Epoch, ErrorCode, Event, EventId, Fault, ModelId, Output, Request, Snapshot, Status, Sync,
    Verdict,
};
use inorder::config::{Backoff, Config, Continuity, Model, OnGap};
use inorder::time::Instant;

const E: Epoch = Epoch(1);
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
}

impl Page {
    /// Wants one entity; nothing was dialed yet.
    fn new(config: Config, model: Model) -> Page {
        let mut client = Client::new(config, 1);
        let model = client.add_model(model);
        let job = client.add_entity(model);
        Page { client, model, job, now: Instant(START), said: Vec::new(), asked: 0, ping: 0, pongs: true }
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
        let event = Event { epoch: E, prev: None, seq: Some(seq), id: event, status, has_data: true, bytes };
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
                Output::Send(Command::Subscribe { request, .. }) => {
                    self.asked = request;
                    "subscribe"
                }
                Output::Send(Command::Replay { request, .. }) => {
                    self.asked = request;
                    "replay"
                }
                Output::Send(Command::Snapshot { request, .. }) => {
                    self.asked = request;
                    "snapshot"
                }
                Output::Send(Command::Heads { request, .. }) => {
                    self.asked = request;
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
    assert_eq!(page.when("subscribe"), [0, 5_000]);
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
    page.answer(8);
    assert_eq!(page.sync(), Sync::Live);
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
    let others: Vec<EntityId> = (0..17).map(|_| page.client.add_entity(page.model)).collect();
    for &id in &others {
        page.client.subscribe(page.now, id);
        page.drain();
        page.answers(id, Some(page.asked), E, 5);
    }
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
    let others: Vec<EntityId> = (0..17).map(|_| page.client.add_entity(page.model)).collect();
    for &id in &others {
        page.client.subscribe(page.now, id);
        page.drain();
        page.answers(id, Some(page.asked), E, 5);
    }
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
    Page { client: page.client.clone(), said: Vec::new(), ..*page }
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
        let id = page.client.add_entity(page.model);
        page.client.subscribe(page.now, id);
        page.drain();
        page.answers(id, Some(page.asked), E, 5);
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
    let mut page = Page::live();
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
    let event = Event {
        epoch: E,
        prev: Some(200_000),
        seq: Some(200_001),
        id: EventId::NONE,
        status: Status::NONE,
        has_data: true,
        bytes: 1,
    };
    page.client.handle_event(page.now, page.job, event, ());
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
