//! The wasm driver in real engines: numbers in, numbers out. Whoever runs this says in which, and where in it: in a
//! window, in a worker, in Node.
//!
//! One instance is one client, and all tests of this file share it: each has entities of its own.
#![cfg(target_arch = "wasm32")]

use inorder::web;
use wasm_bindgen_test::wasm_bindgen_test;

/// Inputs and outputs by the numbers of `web/inputs.rs` and `web/outputs.rs`.
mod code {
    pub const CONNECT: u32 = 1;
    pub const SUBSCRIBE: u32 = 3;
    pub const OPENED: u32 = 8;
    pub const WELCOME: u32 = 11;
    pub const EVENT: u32 = 12;
    pub const SNAPSHOT: u32 = 14;
    pub const TIMEOUT: u32 = 39;
    pub const LOCK: u32 = 40;
    pub const RESTORE: u32 = 42;
    pub const EPOCHS: u32 = 43;
    pub const OUT_CHANGE: u32 = 1;
    pub const OUT_FINAL: u32 = 5;
    pub const OUT_DIAL: u32 = 9;
    pub const OUT_SEND: u32 = 13;
    pub const SUBSCRIBE_ITEM: f64 = 2.0;
    pub const REPLAY_ITEM: f64 = 4.0;
}

/// Registers.
const SUBJECT: usize = 0;
const CODE: usize = 1;
const SEQ: usize = 3;
const SLOT: usize = 5;
const FROM: usize = 12;
const TO: usize = 13;
const REQUEST: usize = 15;

const APPLY: u32 = 1;
const DROP: u32 = 3;

/// Writes registers as the facade does.
fn write(numbers: &[f64]) {
    for (at, &number) in numbers.iter().enumerate() {
        // SAFETY: the registers are 64 doubles that nobody else uses meanwhile, and no test writes more.
        unsafe { web::registers().add(at).write(number) };
    }
}

fn register(at: usize) -> f64 {
    // SAFETY: as above.
    unsafe { web::registers().add(at).read() }
}

fn give(input: u32, now: f64, numbers: &[f64]) -> u32 {
    write(numbers);
    web::handle(input, now)
}

/// Polls to the end and returns kind and registers of the outputs in order.
fn drain(now: f64) -> Vec<(u32, [f64; 16])> {
    let mut outputs = Vec::new();
    while let kind @ 1.. = web::poll(now) {
        outputs.push((kind, core::array::from_fn(register)));
    }
    outputs
}

fn kinds(now: f64) -> Vec<u32> {
    drain(now).into_iter().map(|(kind, _)| kind).collect()
}

/// What the facade gives as options: the defaults.
const OPTIONS: [f64; 22] = [
    15e3, 5e3, 3e3, 5e3, 5e3, 15e3, // timeouts
    100.0, 500.0, 2.0, 20e3, 5e3, // backoff
    100.0, 1e3, 1048576.0, // gap
    2.0, 16.0, 20.0, 1e5, 1e3, -1.0, 30e3, 0.0,
];

/// An entity that is live at 5 in epoch 1, on a socket that is live; once per test.
fn live() -> u32 {
    if web::add_entity(0) == 0 {
        write(&OPTIONS);
        web::create(1, 2);
        write(&[0.0, 0.0, 0.0, 0.0, -1.0, 32.0, 0.0, 0.0]);
        assert_eq!(web::add_model(), 0);
        give(code::CONNECT, 0.0, &[]);
        assert!(kinds(0.0).contains(&code::OUT_DIAL));
        give(code::OPENED, 0.0, &[1.0]);
        assert!(kinds(0.0).contains(&code::OUT_SEND), "hello");
        give(code::WELCOME, 0.0, &[-1.0, 1.0, 1.0, 1.0]);
    }
    let entity = web::add_entity(0);
    give(code::SUBSCRIBE, 0.0, &[f64::from(entity)]);
    let sent = drain(0.0);
    let asks = |(kind, r): &(u32, [f64; 16])| {
        *kind == code::OUT_SEND && r[SUBJECT] == f64::from(entity) && r[CODE] == code::SUBSCRIBE_ITEM
    };
    let (_, asked) = sent.iter().find(|output| asks(output)).expect("it is subscribed");
    give(code::SNAPSHOT, 0.0, &[f64::from(entity), asked[REQUEST], 1.0, 5.0, 0.0, 0.0]);
    assert!(kinds(0.0).contains(&code::OUT_CHANGE));
    entity
}

fn event(entity: u32, seq: f64, slot: f64) -> [f64; 11] {
    [f64::from(entity), -1.0, 1.0, seq, 0.0, slot, f64::NAN, 0.0, 0.0, 1.0, 100.0]
}

#[wasm_bindgen_test]
fn a_clean_event_costs_one_call() {
    let entity = live();
    assert_eq!(web::accept(entity, 5.0, 6.0, 1, 0, true), APPLY);
    assert_eq!(web::accept(entity, 5.0, 6.0, 1, 0, true), DROP);
    assert_eq!(web::accept_with_id(entity, 6.0, 7.0, 1, 0, true, 3, 4), APPLY);
    assert!(drain(0.0).is_empty());
    web::read(entity);
    assert_eq!([register(2), register(3)], [1.0, 7.0]);
}

#[wasm_bindgen_test]
fn an_early_event_keeps_its_slot() {
    let entity = live();
    give(code::EVENT, 0.0, &event(entity, 7.0, 77.0));
    assert!(!kinds(0.0).contains(&code::OUT_CHANGE));
    web::read(entity);
    assert_eq!(register(1), 1.0, "held");
    give(code::EVENT, 0.0, &event(entity, 6.0, 66.0));
    let changes: Vec<_> = drain(0.0).into_iter().filter(|(kind, _)| *kind == code::OUT_CHANGE).collect();
    let shown: Vec<_> = changes.iter().map(|(_, r)| (r[SEQ], r[SLOT])).collect();
    assert_eq!(shown, [(6.0, 66.0), (7.0, 77.0)]);
}

#[wasm_bindgen_test]
fn a_gap_is_asked_for_when_its_grace_is_over() {
    let entity = live();
    give(code::EVENT, 10.0, &event(entity, 9.0, 0.0));
    drain(10.0);
    // Other tests have deadlines too, perhaps earlier ones.
    assert!((0.0..=110.0).contains(&web::timeout()));
    give(code::TIMEOUT, 110.0, &[]);
    let is_ours = |(kind, r): &(u32, [f64; 16])| *kind == code::OUT_SEND && r[SUBJECT] == f64::from(entity);
    let asked: Vec<_> = drain(110.0).into_iter().filter(is_ours).collect();
    assert_eq!(asked.len(), 1);
    let r = asked[0].1;
    let numbers = [r[SUBJECT], r[CODE], r[FROM], r[TO]];
    assert_eq!(numbers, [f64::from(entity), code::REPLAY_ITEM, 6.0, 8.0]);
    // As if it had never been: the other tests have timers of their own.
    for seq in [6.0, 7.0, 8.0] {
        give(code::EVENT, 110.0, &event(entity, seq, 0.0));
    }
    drain(110.0);
}

#[wasm_bindgen_test]
fn a_lock_says_final() {
    let entity = live();
    assert_eq!(web::accept(entity, 5.0, 6.0, 1, 1, true), APPLY);
    give(code::LOCK, 0.0, &[f64::from(entity)]);
    assert!(kinds(0.0).contains(&code::OUT_FINAL));
}

#[wasm_bindgen_test]
fn numbers_up_to_two_to_the_53() {
    let entity = live();
    let top = 9_007_199_254_740_991.0;
    give(code::SNAPSHOT, 0.0, &[f64::from(entity), f64::NAN, 1.0, top - 1.0, 0.0, 0.0]);
    drain(0.0);
    assert_eq!(web::accept(entity, top - 1.0, top, 1, 0, true), APPLY);
    web::read(entity);
    assert_eq!(register(3), top);
}

#[wasm_bindgen_test]
fn what_was_restored_can_be_read() {
    live();
    let entity = web::add_entity(0);
    give(code::RESTORE, 0.0, &[f64::from(entity), -1.0, 9.0, 41.0, 2.0, 1.0]);
    web::read(entity);
    assert_eq!([register(0), register(2), register(3), register(4)], [4.0, 9.0, 41.0, 2.0], "final");
    let epochs = give(code::EPOCHS, 0.0, &[0.0]) as usize;
    assert!((0..epochs.min(64)).any(|at| register(at) == 9.0));
}

#[wasm_bindgen_test]
fn counters_are_in_the_registers() {
    let entity = live();
    web::stats();
    let applied = register(0);
    assert!(register(1) >= 1.0, "adopted");
    let _ = web::accept(entity, 5.0, 6.0, 1, 0, true);
    web::stats();
    assert_eq!(register(0), applied + 1.0);
}

#[wasm_bindgen_test]
fn what_does_not_exist_is_nobodys() {
    live();
    assert_eq!(web::accept(4_000_000_000, 5.0, 6.0, 1, 0, true), 0);
    give(code::EVENT, 0.0, &event(4_000_000_000, 6.0, 7.0));
    give(code::LOCK, 0.0, &[f64::NAN]);
    give(9_999, 0.0, &[f64::NAN; 16]);
    assert!(!kinds(0.0).contains(&code::OUT_CHANGE));
}
