//! What is counted: every counter of `Stats`, by an outcome that raises it and it alone.

use inorder::Client;
use inorder::client::{
    Can, Command, EntityId, Epoch, ErrorCode, Event, EventId, ModelId, Output, Request, Snapshot, Status, Verdict,
};
use inorder::config::{Config, Model, Reopen};
use inorder::time::Instant;

const E: Epoch = Epoch(1);
const F: Epoch = Epoch(2);
const RUNNING: Status = Status(1);
const COMPLETED: Status = Status(2);

/// An event of E with data, and nothing else.
fn numbered(seq: u64) -> Event {
    Event { epoch: E, prev: None, seq: Some(seq), id: EventId::NONE, status: Status::NONE, has_data: true, bytes: 9 }
}

/// A client that follows one entity.
struct Page {
    client: Client<()>,
    model: ModelId,
    job: EntityId,
    now: Instant,
    /// The last request of each kind: subscribe, replay, snapshot, heads.
    asked: [Request; 4],
}

impl Page {
    /// Live at (E, 5).
    fn live(config: Config, model: Model) -> Page {
        let mut client = Client::new(config, 1);
        let model = client.add_model(model);
        let job = client.add_entity(model);
        let mut page = Page { client, model, job, now: Instant(1_000), asked: [0; 4] };
        page.client.subscribe(page.now, job);
        page.drain();
        page.welcome();
        let request = page.asked[0];
        page.snapshot(Some(request), E, 5);
        page
    }

    fn welcome(&mut self) {
        let generation = self.client.current();
        self.client.handle_opened(self.now, generation);
        self.drain();
        self.client.handle_welcome(self.now, None, Can { replay: true, snapshot: true, heads: true });
        self.drain();
    }

    fn event(&mut self, seq: u64) {
        self.give(numbered(seq));
    }

    fn of_epoch(&mut self, epoch: Epoch, seq: u64) {
        self.give(Event { epoch, ..numbered(seq) });
    }

    fn with_id(&mut self, seq: u64, id: u64) {
        self.give(Event { id: EventId(id), ..numbered(seq) });
    }

    fn give(&mut self, event: Event) {
        self.client.handle_event(self.now, self.job, event, ());
        self.drain();
    }

    fn snapshot(&mut self, request: Option<Request>, epoch: Epoch, seq: u64) {
        let snapshot = Snapshot { request, epoch, seq, status: RUNNING };
        self.client.handle_snapshot(self.now, self.job, snapshot, ());
        self.drain();
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(at) = self.client.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.client.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn drain(&mut self) {
        while let Some(output) = self.client.poll_output(self.now) {
            match output {
                Output::Change(change) if change.status == COMPLETED => self.client.lock(self.now, self.job),
                Output::Send(Command::Subscribe { request, .. }) => self.asked[0] = request,
                Output::Send(Command::Replay { request, .. }) => self.asked[1] = request,
                Output::Send(Command::Snapshot { request, .. }) => self.asked[2] = request,
                Output::Send(Command::Heads { request, .. }) => self.asked[3] = request,
                _ => {}
            }
        }
    }
}

/// What `act` raises on a page that is live at 5, as `name 1, name 2`.
fn raised(page: &mut Page, act: impl FnOnce(&mut Page)) -> String {
    let count = |page: &Page| serde_json::to_value(page.client.stats()).expect("numbers can be written");
    let before = count(page);
    act(page);
    let after = count(page);
    let risen = after.as_object().expect("an object").iter().filter_map(|(name, value)| {
        let more = value.as_u64()? - before[name].as_u64()?;
        (more > 0).then(|| format!("{name} {more}"))
    });
    let mut risen: Vec<String> = risen.collect();
    risen.sort();
    risen.join(", ")
}

macro_rules! counters {
    ($($name:ident: $act:expr => $expected:literal)*) => {$(
        #[test]
        fn $name() {
            let mut page = Page::live(Config::default(), Model::default());
            assert_eq!(raised(&mut page, $act), $expected);
        }
    )*};
}

counters! {
    an_event_in_order: |page: &mut Page| page.event(6) => "applied 1"
    a_duplicate: |page: &mut Page| page.event(5) => "duplicates 1"
    an_event_with_seq_0: |page: &mut Page| page.event(0) => "duplicates 1"
    an_empty_event: |page: &mut Page| page.give(Event { has_data: false, ..numbered(6) }) => "applied 1, silent 1"
    a_vacancy: |page: &mut Page| { page.client.handle_vacant(page.now, page.job, E, 6, 7); page.drain(); } => "applied 1, silent 1"
    a_repeated_id: |page: &mut Page| { page.with_id(6, 1); page.with_id(7, 1); } => "applied 2, silent 1"
    an_early_event: |page: &mut Page| page.event(7) => "gaps 1, held 1"
    a_replay_and_its_retry: |page: &mut Page| { page.event(7); page.pass(3_200); } => "gaps 1, held 1, replays 2"
    replays_in_vain_and_a_snapshot: |page: &mut Page| { page.event(7); page.pass(6_200); } => "gaps 1, held 1, replays 2, snapshots 1"
    a_replay_that_fills_the_gap: |page: &mut Page| {
        page.event(7);
        page.pass(100);
        let request = page.asked[1];
        assert!(page.client.begin_replay(page.now, page.job, request));
        page.event(6);
        page.client.end_replay(page.now, page.job, request, true);
        page.drain();
    } => "applied 2, gaps 1, held 1, replays 1"
    a_stale_snapshot: |page: &mut Page| page.snapshot(None, E, 4) => "stale 1"
    a_newer_snapshot: |page: &mut Page| page.snapshot(None, E, 9) => "adopted 1"
    a_snapshot_that_confirms: |page: &mut Page| page.snapshot(None, E, 5) => ""
    a_new_epoch_and_its_predecessor: |page: &mut Page| {
        page.snapshot(None, F, 9);
        page.event(6);
    } => "adopted 1, resets 1, retired 1"
    a_fork: |page: &mut Page| { page.with_id(6, 1); page.with_id(6, 2); } => "applied 1, diverged 1, snapshots 1"
    changes_after_the_end: |page: &mut Page| {
        page.give(Event { status: COMPLETED, ..numbered(6) });
        page.event(7);
        page.snapshot(None, E, 9);
        page.snapshot(None, F, 9);
    } => "afterFinal 3, applied 1"
    what_is_old_or_equal_after_the_end: |page: &mut Page| {
        page.give(Event { status: COMPLETED, ..numbered(6) });
        page.event(6);
        page.snapshot(None, E, 6);
        page.snapshot(None, E, 5);
        page.snapshot(None, E, 4);
    } => "applied 1, duplicates 1, stale 2"
    epochs_under_suspicion: |page: &mut Page| {
        for epoch in 10..19 {
            page.of_epoch(Epoch(epoch), 6);
        }
    } => "held 9, overflowed 1, snapshots 1"
    an_epoch_that_was_refuted_three_times: |page: &mut Page| {
        for _ in 0..3 {
            page.client.handle_head(page.now, page.job, F, 9, None);
            page.drain();
            page.pass(4_000);
            let request = page.asked[2];
            page.snapshot(Some(request), E, 5);
        }
        page.of_epoch(F, 9);
        page.snapshot(None, F, 9);
    } => "retired 2, snapshots 3"
    an_event_held_far_ahead_of_who_joins: |page: &mut Page| {
        page.client.unsubscribe(page.now, page.job);
        page.client.release(page.now, page.job);
        page.drain();
        page.job = page.client.add_entity(page.model);
        page.client.subscribe(page.now, page.job);
        page.drain();
        page.event(200_000);
        let request = page.asked[0];
        page.snapshot(Some(request), E, 5);
    } => "adopted 1, badFrames 1, held 1"
    frames_that_can_not_be_read: |page: &mut Page| page.client.handle_bad_frame(page.now) => "badFrames 1"
    events_that_can_not_be_placed: |page: &mut Page| {
        page.event(1 << 53);
        page.give(Event { prev: Some(2), ..numbered(6) });
        page.give(Event { seq: None, ..numbered(6) });
        page.snapshot(None, E, 1 << 53);
        page.client.handle_vacant(page.now, page.job, E, 7, 6);
        page.client.handle_vacant(page.now, page.job, E, 0, 6);
        page.client.handle_vacant(page.now, page.job, E, 6, 1 << 53);
        page.client.handle_head(page.now, page.job, E, 1 << 53, None);
    } => "badFrames 8"
    an_event_far_ahead: |page: &mut Page| page.event(200_000) => "badFrames 1, snapshots 1"
    frames_of_strangers: |page: &mut Page| {
        let model = page.client.add_model(Model::default());
        let stranger = page.client.add_entity(model);
        let event = numbered(1);
        page.client.handle_event(page.now, stranger, event, ());
        page.client.handle_vacant(page.now, stranger, E, 1, 1);
        page.client.handle_snapshot(page.now, stranger, Snapshot { request: None, epoch: E, seq: 1, status: RUNNING }, ());
        assert!(!page.client.begin_replay(page.now, stranger, 1));
        page.client.handle_unknown();
        page.drain();
    } => "unknown 5"
    answers_that_nobody_asked_for: |page: &mut Page| {
        page.snapshot(Some(77), E, 9);
        page.client.handle_subscribed(page.now, page.job, 77, E, 9);
        assert!(!page.client.begin_replay(page.now, page.job, 77));
        page.client.handle_final(page.now, page.job, 77, E, COMPLETED, None);
        page.client.handle_head(page.now, page.job, E, 9, Some(77));
        page.drain();
    } => "unwanted 5"
    errors_are_no_answers_in_vain: |page: &mut Page| {
        page.client.handle_error(page.now, ErrorCode::Other, Some(77), Some(page.job), None);
        page.drain();
    } => ""
    a_broken_socket_and_the_next_dial: |page: &mut Page| {
        let generation = page.client.current();
        page.client.handle_closed(page.now, generation, 1006);
        page.drain();
        page.pass(600);
    } => "dials 1"
    too_many_bad_frames: |page: &mut Page| {
        page.pass(10_000);
        for _ in 0..20 {
            page.client.handle_bad_frame(page.now);
        }
        page.drain();
        page.event(6);
    } => "applied 1, badFrames 20"
    a_socket_that_says_nothing_more: |page: &mut Page| page.pass(40_000) => "dials 1, replaced 1"
}

#[test]
fn a_full_buffer() {
    let mut config = Config::default();
    config.gap.max_events = 2;
    let mut page = Page::live(config, Model::default());
    let said = raised(&mut page, |page| [8, 9, 10, 11].into_iter().for_each(|seq| page.event(seq)));
    assert_eq!(said, "gaps 1, held 4, overflowed 2, snapshots 1");
}

#[test]
fn an_end_in_an_epoch_that_may_be_reopened() {
    let mut page = Page::live(Config::default(), Model { reopen: Reopen::Epoch, ..Model::default() });
    let said = raised(&mut page, |page| {
        page.give(Event { status: COMPLETED, ..numbered(6) });
        page.event(7);
        page.snapshot(None, F, 1);
        page.event(8);
    });
    assert_eq!(said, "adopted 1, afterFinal 1, applied 1, resets 1, retired 1");
}

#[test]
fn a_change_that_could_not_be_shown_is_not_counted() {
    let mut page = Page::live(Config::default(), Model::default());
    let said = raised(&mut page, |page| {
        let event = Event { prev: Some(5), ..numbered(6) };
        page.client.handle_event(page.now, page.job, event, ());
        while let Some(output) = page.client.poll_output(page.now) {
            if let Output::Change(_) = output {
                page.client.rollback(page.now, page.job, Some((event, ())));
            }
        }
    });
    assert_eq!(said, "snapshots 1");
}

#[test]
fn a_number_that_voids_what_was_before_it() {
    let mut page = Page::live(Config::default(), Model { reset_seq: Some(1), ..Model::default() });
    assert_eq!(raised(&mut page, |page| page.event(1)), "applied 1, resets 1");
}

#[test]
fn the_short_way_counts_what_it_drops() {
    let mut page = Page::live(Config::default(), Model::default());
    let accept = |page: &mut Page, id| page.client.accept_with_id(page.job, 5, 6, E, Status::NONE, true, EventId(id));
    let said = raised(&mut page, |page| {
        assert_eq!(accept(page, 1), Verdict::Apply);
        assert_eq!(accept(page, 1), Verdict::Drop);
        assert_eq!(accept(page, 2), Verdict::Slow, "another id is a fork");
    });
    assert_eq!(said, "applied 1, duplicates 1");
}
