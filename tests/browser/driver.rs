//! The wasm driver in a real browser: numbers in and out, sockets, timers, page events.
#![cfg(target_arch = "wasm32")]

use inorder::web;
use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

/// Inputs and outputs by the numbers of `web/numbers.rs`.
mod code {
    pub const CONNECT: u32 = 1;
    pub const SUBSCRIBE: u32 = 3;
    pub const OPENED: u32 = 8;
    pub const WELCOME: u32 = 11;
    pub const EVENT: u32 = 12;
    pub const SNAPSHOT: u32 = 14;
    pub const LOCK: u32 = 40;
    pub const OUT_CHANGE: u32 = 1;
    pub const OUT_FINAL: u32 = 5;
    pub const OUT_DIAL: u32 = 9;
    pub const OUT_SEND: u32 = 13;
}

const APPLY: u32 = 1;
const DROP: u32 = 3;

/// Writes registers as the facade does.
fn write(numbers: &[f64]) {
    let registers = web::registers().cast_mut();
    for (at, &number) in numbers.iter().enumerate() {
        // SAFETY: the registers are 192 doubles that nobody else uses meanwhile, and no test writes more.
        unsafe { registers.add(at).write(number) };
    }
}

fn register(at: usize) -> f64 {
    // SAFETY: as above.
    unsafe { web::registers().add(at).read() }
}

fn give(client: u32, input: u32, numbers: &[f64]) -> u32 {
    write(numbers);
    web::handle(client, input, 0.0)
}

/// Polls to the end and returns the kinds of output in order.
fn drain(client: u32) -> Vec<u32> {
    std::iter::from_fn(|| Some(web::poll(client, 0.0)).filter(|&kind| kind != 0)).collect()
}

/// A client with one entity that is live at 5 in epoch 1.
fn live() -> (u32, u32) {
    write(&[f64::NAN; 26]);
    let client = web::create(1, 2);
    write(&[f64::NAN; 8]);
    let model = web::add_model(client);
    let entity = web::add_entity(client, model);
    give(client, code::SUBSCRIBE, &[f64::from(entity)]);
    assert!(drain(client).contains(&code::OUT_DIAL));
    give(client, code::OPENED, &[1.0]);
    assert!(drain(client).contains(&code::OUT_SEND));
    give(client, code::WELCOME, &[-1.0, 1.0, 1.0, 1.0]);
    give(client, code::SNAPSHOT, &[f64::from(entity), 1.0, 1.0, 5.0, 0.0, 0.0]);
    assert!(drain(client).contains(&code::OUT_CHANGE));
    (client, entity)
}

fn function(body: impl FnMut(JsValue) + 'static) -> Function {
    Closure::<dyn FnMut(JsValue)>::new(body).into_js_value().unchecked_into()
}

/// A function that notes how it is called.
fn noted(calls: &Array, name: &str) -> Function {
    let (calls, name) = (calls.clone(), JsValue::from_str(name));
    function(move |_| {
        calls.push(&name);
    })
}

/// A real socket that nobody answers.
fn socket() -> web_sys::WebSocket {
    // Port 9 discards; nothing in a test listens there.
    web_sys::WebSocket::new("ws://127.0.0.1:9/").expect("a socket")
}

async fn sleep(ms: i32) {
    let window = web_sys::window().expect("a window");
    let promise = Promise::new(&mut |resolve, _| {
        window.set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, ms).expect("a timer");
    });
    JsFuture::from(promise).await.expect("it resolves");
}

#[wasm_bindgen_test]
fn a_clean_event_costs_one_call() {
    let (client, entity) = live();
    assert_eq!(web::accept(client, entity, 5.0, 6.0, 1, 0, true), APPLY);
    assert_eq!(web::accept(client, entity, 5.0, 6.0, 1, 0, true), DROP);
    assert_eq!(web::accept_with_id(client, entity, 6.0, 7.0, 1, 0, true, 3, 4), APPLY);
    assert!(drain(client).is_empty());
    web::read(client, entity);
    assert_eq!([register(2), register(3), register(4)], [1.0, 1.0, 7.0]);
    web::destroy(client);
}

#[wasm_bindgen_test]
fn an_early_event_keeps_its_slot() {
    let (client, entity) = live();
    let early = [f64::from(entity), 1.0, f64::NAN, 7.0, 0.0, 0.0, 0.0, 1.0, 100.0, 77.0];
    give(client, code::EVENT, &early);
    assert!(!drain(client).contains(&code::OUT_CHANGE));
    web::read(client, entity);
    assert_eq!(register(1), 1.0);
    let due = [f64::from(entity), 1.0, f64::NAN, 6.0, 0.0, 0.0, 0.0, 1.0, 100.0, 66.0];
    give(client, code::EVENT, &due);
    let mut slots = Vec::new();
    while let kind @ 1.. = web::poll(client, 0.0) {
        if kind == code::OUT_CHANGE {
            slots.push((register(4), register(10)));
        }
    }
    assert_eq!(slots, [(6.0, 66.0), (7.0, 77.0)]);
    web::destroy(client);
}

#[wasm_bindgen_test]
fn a_lock_says_final() {
    let (client, entity) = live();
    assert_eq!(web::accept(client, entity, 5.0, 6.0, 1, 1, true), APPLY);
    give(client, code::LOCK, &[f64::from(entity)]);
    assert!(drain(client).contains(&code::OUT_FINAL));
    web::destroy(client);
}

#[wasm_bindgen_test]
fn numbers_up_to_two_to_the_53() {
    let (client, entity) = live();
    let top = 9_007_199_254_740_991.0;
    give(client, code::SNAPSHOT, &[f64::from(entity), f64::NAN, 1.0, top - 1.0, 0.0, 0.0]);
    drain(client);
    assert_eq!(web::accept(client, entity, top - 1.0, top, 1, 0, true), APPLY);
    web::read(client, entity);
    assert_eq!(register(4), top);
    web::destroy(client);
}

#[wasm_bindgen_test]
fn counters_leave_as_a_list() {
    let (client, entity) = live();
    let _ = web::accept(client, entity, 5.0, 6.0, 1, 0, true);
    let counters: Array = web::stats(client).unchecked_into();
    assert_eq!(counters.get(0).as_f64(), Some(1.0), "applied");
    assert_eq!(counters.get(1).as_f64(), Some(1.0), "adopted");
    web::destroy(client);
}

#[wasm_bindgen_test]
fn a_client_that_is_gone_answers_nothing() {
    let (client, entity) = live();
    web::destroy(client);
    assert_eq!(web::accept(client, entity, 5.0, 6.0, 1, 0, true), 0);
    assert_eq!(web::poll(client, 0.0), 0);
    web::detach(client);
}

#[wasm_bindgen_test]
async fn a_real_socket_that_cannot_be_opened_says_1006() {
    let calls = Array::new();
    let code = Array::new();
    let onclose = function({
        let code = code.clone();
        move |event| {
            code.push(&Reflect::get(&event, &"code".into()).expect("a close event"));
        }
    });
    let none = noted(&calls, "error");
    let socket = socket();
    web::open_socket(900, socket.clone(), &noted(&calls, "open"), &none, &onclose, &none);
    assert_eq!(socket.binary_type(), web_sys::BinaryType::Arraybuffer);
    for _ in 0..100 {
        if code.length() > 0 {
            break;
        }
        sleep(50).await;
    }
    assert_eq!(code.get(0).as_f64(), Some(1006.0));
    assert!(!calls.includes(&"open".into(), 0));
    web::detach(900);
}

#[wasm_bindgen_test]
async fn a_socket_that_we_closed_calls_nobody() {
    let calls = Array::new();
    let handler = noted(&calls, "called");
    let silent = function(|_| {});
    web::open_socket(901, socket(), &handler, &handler, &handler, &silent);
    web::close_socket(901, 4000);
    sleep(300).await;
    assert_eq!(calls.length(), 0);
}

#[wasm_bindgen_test]
async fn the_timer_fires_once_when_due() {
    let calls = Array::new();
    write(&[f64::NAN; 26]);
    let client = web::create(1, 2);
    web::attach(client, noted(&calls, "timer"), None, function(|_| {}));
    web::arm(client, 0.0);
    sleep(20).await;
    assert_eq!(calls.length(), 0, "nothing is due");
    // A dial has a deadline of 15 s; seen from later it is due at once.
    give(client, code::CONNECT, &[]);
    drain(client);
    web::arm(client, 14_990.0);
    sleep(100).await;
    assert_eq!(calls.length(), 1);
    sleep(50).await;
    assert_eq!(calls.length(), 1);
    web::detach(client);
    web::destroy(client);
}

#[wasm_bindgen_test]
async fn a_timer_that_was_taken_off_does_not_fire() {
    let calls = Array::new();
    write(&[f64::NAN; 26]);
    let client = web::create(1, 2);
    web::attach(client, noted(&calls, "timer"), None, function(|_| {}));
    give(client, code::CONNECT, &[]);
    drain(client);
    web::arm(client, 14_990.0);
    web::detach(client);
    sleep(100).await;
    assert_eq!(calls.length(), 0);
    web::destroy(client);
}

#[wasm_bindgen_test]
fn page_events_arrive_until_detached() {
    let calls = Array::new();
    let window = web_sys::window().expect("a window");
    let document = window.document().expect("a document");
    let kinds = function({
        let calls = calls.clone();
        move |event| {
            calls.push(&Reflect::get(&event, &"type".into()).expect("an event"));
        }
    });
    let fire = || {
        for name in ["online", "offline", "pagehide", "pageshow"] {
            window.dispatch_event(&web_sys::Event::new(name).expect("an event")).expect("dispatched");
        }
        for name in ["visibilitychange", "resume"] {
            document.dispatch_event(&web_sys::Event::new(name).expect("an event")).expect("dispatched");
        }
    };
    web::attach(903, function(|_| {}), web_sys::window(), kinds);
    fire();
    assert_eq!(calls.join(" "), "online offline pagehide pageshow visibilitychange resume");
    web::detach(903);
    fire();
    assert_eq!(calls.length(), 6);
}
