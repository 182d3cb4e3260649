//! A script, a line each: what a server says, what happens to sockets, what the page does, how time passes.
//!
//! ```text
//!  {"type":...} or [..]   a message on the newest socket; so is any other line
//!  +1500                  time passes, timers fire
//!  -1006                  the socket ends with this code
//!  *3                     the page does something, see `CALLS`
//! ```

use crate::facade::{Call, Facade, Message, Options, Record};
use crate::options;
use crate::page::Page;

/// Lines that are read; a longer script tells nothing new.
const LINES: usize = 256;

/// The longest wait of one line, in ms.
const WAIT: u64 = 600_000;

/// What follows the last line, in ms: two rounds of everything that is repeated.
const CALM: u64 = 60_000;

/// Timers that fire in one line: more is a loop. Ten per second would be one timer without rest.
const RESTLESS: u64 = 10_000;

/// Timers of one line where the options ask for waits of next to nothing.
const HASTY: u64 = 200;

pub const ENTITIES: [&str; 4] = ["job/1", "job/2", "topic/t", "x"];

pub fn play(data: &[u8], options: Options) {
    let mut run = Run {
        page: Page::new(&options),
        paced: options::is_paced(&options.config),
        facade: Facade::new(options, 1),
        now: 1_000,
        socket: None,
        fails: 0,
    };
    run.facade.set_now(run.now);
    run.call(0);
    for line in data.split(|&byte| byte == b'\n').take(LINES) {
        run.line(line);
    }
    run.wait(CALM);
}

struct Run {
    facade: Facade,
    page: Page,
    paced: bool,
    now: u64,
    socket: Option<u32>,
    /// Dials that are going to fail.
    fails: u64,
}

impl Run {
    fn line(&mut self, line: &[u8]) {
        let number = || std::str::from_utf8(&line[1..]).ok()?.parse::<u64>().ok();
        match (line.first(), line.len()) {
            (Some(b'+'), 2..8) if number().is_some() => self.wait(number().unwrap_or(0).min(WAIT)),
            (Some(b'-'), 2..7) if number().is_some() => match (number(), self.socket.take()) {
                (Some(code), Some(socket)) => {
                    self.facade.ended(socket, u16::try_from(code).unwrap_or(1006));
                    self.settle();
                }
                (code, socket) => {
                    self.socket = socket;
                    self.fails = code.unwrap_or(0) % 8;
                }
            },
            (Some(b'*'), 2..5) if number().is_some() => self.call(number().unwrap_or(0)),
            _ => {
                let message = match std::str::from_utf8(line) {
                    Ok(text) => Message::Text(text.to_owned()),
                    Err(_) => Message::Binary(line.to_vec()),
                };
                if let Some(socket) = self.socket {
                    self.page.told(&message);
                    self.facade.message(socket, &message);
                }
                self.settle();
            }
        }
    }

    fn call(&mut self, number: u64) {
        let entity = ENTITIES[(number % 4) as usize].to_owned();
        match number / 4 {
            0 => self.facade.call(&Call::Subscribe { entity, params: None }),
            1 => {
                self.page.left(&entity);
                self.facade.call(&Call::Unsubscribe { entity });
            }
            2 => self.facade.page_visible(),
            3 => self.facade.page_online(),
            4 => self.facade.page_offline(),
            5 => self.facade.page_resume(),
            6 => self.facade.call(&Call::Connect),
            7 => self.facade.call(&Call::Changes { entity, name: "reader".to_owned() }),
            8 => self.facade.call(&Call::Read { name: "reader".to_owned() }),
            _ => {}
        }
        self.settle();
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now + ms;
        let mut fired = 0;
        let mut sent = 0;
        while let Some(at) = self.facade.next_timer().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.facade.set_now(self.now);
            self.facade.fire();
            sent += self.settle();
            fired += 1;
            assert!(fired < RESTLESS, "the timers never rest: {fired} within {ms} ms");
            if fired > HASTY && !self.paced {
                break;
            }
        }
        self.now = until;
        self.facade.set_now(self.now);
        // Four entities, each with a request a second at most, ten dials of two frames, and pings.
        assert!(!self.paced || sent < 500 + ms / 20, "{sent} frames in {ms} ms");
    }

    /// Does what the client asks for until it asks for nothing more; returns how many frames it sent.
    fn settle(&mut self) -> u64 {
        let mut sent = 0;
        for round in 0.. {
            assert!(round < 1_000, "the client never settles");
            if let Some(token) = self.facade.wants_token() {
                self.facade.answer_token(Some(&token));
            }
            let trace = self.facade.take_trace();
            self.facade.take_arrived();
            if trace.is_empty() {
                break;
            }
            for record in trace {
                match &record {
                    Record::Send { generation, frame } => {
                        sent += 1;
                        assert_eq!(Some(*generation), self.socket, "sent on another socket: {frame}");
                    }
                    Record::Dial { generation } if self.fails > 0 => {
                        self.fails -= 1;
                        self.page.record(&record);
                        self.facade.ended(*generation, 1006);
                        continue;
                    }
                    Record::Dial { generation } => {
                        self.socket = Some(*generation);
                        self.page.record(&record);
                        self.facade.opened(*generation);
                        continue;
                    }
                    Record::Close { generation, .. } if Some(*generation) == self.socket => self.socket = None,
                    _ => {}
                }
                self.page.record(&record);
            }
            for entity in ENTITIES {
                self.page.holds(entity, self.facade.held(entity));
            }
        }
        sent
    }
}
