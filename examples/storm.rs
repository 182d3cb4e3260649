//! A gateway goes away under many clients at once and comes back: when do they dial?
//!
//! `cargo run --release --example storm -- [CLIENTS] [AWAY_MS]`. Each client is a core of its own with the published
//! defaults; time is simulated, so that this takes a moment. Prints how many dials each 100 ms saw, from the moment when
//! all sockets broke, as JSON. `npm run storm` draws it beside other clients.

use inorder::Client;
use inorder::client::{Can, Output};
use inorder::config::{Config, Model};
use inorder::time::{Instant, Millis};

/// Dials are counted in pieces of this length.
const PIECE: Millis = 100;

/// All sockets were good for so long when they broke together, so that nobody still backs off.
const GOOD: Millis = 60_000;

/// Nobody listens at the gateway's port: a dial is refused within this time.
const REFUSED: Millis = 1;

/// No browser has it: the connection was lost without a word.
const LOST: u16 = 1006;

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let clients = args.first().copied().unwrap_or(100_000);
    let away = args.get(1).copied().unwrap_or(60_000);
    let mut dials: Vec<u64> = Vec::new();
    for seed in 1..=clients {
        for at in dials_of(seed, away) {
            let piece = (at / PIECE) as usize;
            if dials.len() <= piece {
                dials.resize(piece + 1, 0);
            }
            dials[piece] += 1;
        }
    }
    let dials: Vec<String> = dials.iter().map(u64::to_string).collect();
    println!("{{\"clients\":{clients},\"away\":{away},\"piece\":{PIECE},\"dials\":[{}]}}", dials.join(","));
}

/// When one client dials, in milliseconds since its socket broke; the last dial is the one that is taken.
fn dials_of(seed: u64, away: Millis) -> Vec<Millis> {
    let mut client: Client<()> = Client::new(Config::default(), seed);
    let model = client.add_model(Model::default());
    let job = client.add_entity(model);
    client.subscribe(Instant(0), job);
    let generation = dial(&mut client, Instant(0)).expect("the first dial comes at once");
    client.handle_opened(Instant(0), generation);
    client.handle_welcome(Instant(0), None, Can { replay: true, snapshot: true, heads: true });
    let broken = Instant(GOOD);
    client.handle_closed(broken, generation, LOST);
    let mut dials = Vec::new();
    let mut now = broken;
    loop {
        if let Some(generation) = dial(&mut client, now) {
            let at = now.since(broken);
            dials.push(at);
            if at >= away {
                return dials;
            }
            now = now + REFUSED;
            client.handle_closed(now, generation, LOST);
            continue;
        }
        now = client.poll_timeout().expect("a client that is wanted has a dial ahead of it").max(now);
        client.handle_timeout(now);
    }
}

/// Takes what the client wants done, and returns the socket that it wants opened.
fn dial(client: &mut Client<()>, now: Instant) -> Option<u32> {
    let mut dialed = None;
    while let Some(output) = client.poll_output(now) {
        if let Output::Dial { generation } = output {
            dialed = Some(generation);
        }
    }
    dialed
}
