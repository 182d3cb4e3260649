//! A real gateway on a free port, and small clients for it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use inorder::wire::{SUBPROTOCOL, ServerFrame};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Nothing here takes longer unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The arguments of most tests: open, no workload.
pub const QUIET: [&str; 3] = ["--open", "--workload", "none"];

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    stderr: Option<Lines<BufReader<ChildStderr>>>,
    pub address: String,
}

impl Gateway {
    pub async fn start(args: &[&str]) -> Gateway {
        let postgres = std::env::var("INORDER_POSTGRES").ok().filter(|_| !args.contains(&"--database"));
        let place = postgres.map(|url| in_postgres(&url, &format!("log_{}_{}", std::process::id(), next())));
        let mut child = Command::new(env!("CARGO_BIN_EXE_inorder-gateway"))
            .args(["--port", "0"])
            .args(place.iter().flat_map(|place| ["--database", place]))
            .args(args)
            .env_remove("DATABASE_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the gateway starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line in time").unwrap();
        let mut gateway = Gateway { child, stderr: Some(stderr), address: String::new() };
        let Some(line) = line else { panic!("no line; stderr: {}", gateway.rest_of_stderr().await) };
        gateway.address = line.strip_prefix("listening on http://").expect(&line).to_owned();
        gateway
    }

    /// A gateway without workloads, all open.
    pub async fn quiet(args: &[&str]) -> Gateway {
        Gateway::start(&[&QUIET[..], args].concat()).await
    }

    /// A gateway without workloads that keeps its log in a file.
    pub async fn with_file(database: &Path, args: &[&str]) -> Gateway {
        let place = database.to_str().unwrap();
        let place = match std::env::var("INORDER_POSTGRES") {
            Ok(url) => in_postgres(&url, &place.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
            Err(_) => place.to_owned(),
        };
        Gateway::quiet(&[&["--database", &place], args].concat()).await
    }

    async fn rest_of_stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(lines) = self.stderr.take() {
            let _ = lines.into_inner().read_to_string(&mut text).await;
        }
        text
    }

    /// Waits for a line in the gateway's log.
    pub async fn logged(&mut self, part: &str) {
        let lines = self.stderr.as_mut().unwrap();
        let wait = async { while !lines.next_line().await.unwrap().expect("more lines").contains(part) {} };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never logged: {part}"));
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let id = self.child.id().unwrap();
        let killed = std::process::Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status();
        assert!(killed.unwrap().success());
    }

    /// Waits for the end; whether it was a good one.
    pub async fn ended(&mut self) -> bool {
        timeout(PATIENCE, self.child.wait()).await.expect("an end").unwrap().success()
    }

    pub async fn stop(mut self) {
        self.terminate();
        assert!(self.ended().await);
    }

    pub async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A refused body may be answered before it was read; the answer counts.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer");
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, &[], "").await
    }

    pub async fn try_post(&self, entity: &str, event: &Value) -> (u16, Value) {
        let path = format!("/entities/{}/events", entity.replace('/', "%2F"));
        self.request("POST", &path, &[], &event.to_string()).await
    }

    /// Posts an event and returns its number.
    pub async fn post(&self, entity: &str, event: &Value) -> u64 {
        let (status, body) = self.try_post(entity, event).await;
        assert_eq!(status, 200, "{body}");
        body["seq"].as_u64().unwrap()
    }

    /// Posts events with data `{"count": 1}`, `{"count": 2}` …, in order.
    pub async fn count(&self, entity: &str, from: u64, to: u64) {
        for count in from..=to {
            assert_eq!(self.post(entity, &json!({ "data": { "count": count } })).await, count);
        }
    }

    pub async fn epoch(&self) -> String {
        self.get("/health").await.1["epoch"].as_str().unwrap().to_owned()
    }
}

/// Where a log of its own lies in the database that `INORDER_POSTGRES` names: all these tests run there too.
fn in_postgres(url: &str, name: &str) -> String {
    format!("{url}?options=-csearch_path%3D{}", name.to_ascii_lowercase())
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A client's socket. Checks that `n` counts.
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
    frames: VecDeque<ServerFrame>,
    n: u64,
}

/// How to open a socket.
#[derive(Default)]
pub struct Opening<'a> {
    pub origin: Option<&'a str>,
    pub protocol: Option<&'a str>,
    pub path: Option<&'a str>,
    /// The size of the system's buffer for what was not read.
    pub buffer: Option<u32>,
}

impl Socket {
    pub async fn try_open(gateway: &Gateway, opening: Opening<'_>) -> Result<Socket, tungstenite::Error> {
        let path = opening.path.unwrap_or("/ws");
        let mut request = format!("ws://{}{path}", gateway.address).into_client_request().unwrap();
        let protocol = opening.protocol.unwrap_or(SUBPROTOCOL);
        if !protocol.is_empty() {
            request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_str(protocol).unwrap());
        }
        if let Some(origin) = opening.origin {
            request.headers_mut().insert("origin", HeaderValue::from_str(origin).unwrap());
        }
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(buffer) = opening.buffer {
            socket.set_recv_buffer_size(buffer).unwrap();
        }
        let stream = socket.connect(gateway.address.parse().unwrap()).await.unwrap();
        let (stream, _) = client_async(request, stream).await?;
        Ok(Socket { stream, frames: VecDeque::new(), n: 0 })
    }

    /// Opens a socket and says hello.
    pub async fn open(gateway: &Gateway) -> Socket {
        Socket::open_with(gateway, Opening::default(), json!({ "type": "hello", "client": "test/1" })).await
    }

    /// Opens a socket at another path and says hello.
    pub async fn open_at(gateway: &Gateway, path: &str) -> Socket {
        let opening = Opening { path: Some(path), ..Opening::default() };
        Socket::open_with(gateway, opening, json!({ "type": "hello", "client": "test/1" })).await
    }

    pub async fn open_with(gateway: &Gateway, opening: Opening<'_>, hello: Value) -> Socket {
        let mut socket = Socket::try_open(gateway, opening).await.expect("a socket");
        socket.send(hello).await;
        let welcome = socket.next().await;
        assert!(matches!(welcome, ServerFrame::Welcome(_)), "{welcome:?}");
        socket
    }

    pub async fn send(&mut self, frames: Value) {
        self.send_text(frames.to_string()).await;
    }

    pub async fn send_text(&mut self, text: String) {
        self.stream.send(Message::text(text)).await.unwrap();
    }

    pub async fn send_binary(&mut self, bytes: &[u8]) {
        self.stream.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    pub async fn subscribe(&mut self, request: u64, entities: Value) {
        self.send(json!({ "type": "subscribe", "request": request, "entities": entities })).await;
    }

    /// The next frame, or the close code.
    pub async fn next_or_close(&mut self) -> Result<ServerFrame, u16> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(frame);
            }
            match timeout(PATIENCE, self.stream.next()).await.expect("a message in time") {
                Some(Ok(Message::Text(text))) => {
                    for received in ServerFrame::decode(&text) {
                        let received = received.expect(&text);
                        self.n += 1;
                        assert_eq!(received.n, Some(self.n), "{text}");
                        self.frames.extend(received.frame);
                    }
                }
                Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1005, |frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    pub async fn next(&mut self) -> ServerFrame {
        self.next_or_close().await.unwrap_or_else(|code| panic!("closed with {code}"))
    }

    /// The next frame that is no heartbeat, as JSON.
    pub async fn next_json(&mut self) -> Value {
        let wait = async {
            loop {
                let frame = self.next().await;
                if !matches!(frame, ServerFrame::Heartbeat(_)) {
                    return serde_json::to_value(frame).unwrap();
                }
            }
        };
        timeout(PATIENCE, wait).await.expect("a frame in time")
    }

    /// The next frames, heartbeats left out, each shortened to what a test compares.
    pub async fn next_brief(&mut self, count: usize) -> Vec<String> {
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(brief(&self.next_json().await));
        }
        frames
    }

    /// Reads up to the next heartbeat; what came before it, shortened, and the heartbeat.
    pub async fn until_heartbeat(&mut self) -> (Vec<String>, inorder::wire::Heartbeat) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                ServerFrame::Heartbeat(heartbeat) => return (frames, heartbeat),
                frame => frames.push(brief(&serde_json::to_value(frame).unwrap())),
            }
        }
    }

    /// Whether nothing but heartbeats comes before the answer to a ping.
    pub async fn is_quiet(&mut self) -> bool {
        self.send(json!({ "type": "ping", "id": "quiet?" })).await;
        self.next_json().await == json!({ "type": "pong", "id": "quiet?" })
    }

    /// Reads to the end: the frames, and the close code.
    pub async fn rest(&mut self) -> (Vec<ServerFrame>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.next_or_close().await {
                Ok(frame) => frames.push(frame),
                Err(code) => return (frames, code),
            }
        }
    }
}

/// `event job/1 3`, `snapshot job/1 3`, `replay job/1 4-6 done` and the like.
pub fn brief(frame: &Value) -> String {
    let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    let kind = text("type");
    let what = match kind.as_str() {
        "event" | "snapshot" => frame["seq"].to_string(),
        "subscribed" | "ahead" => frame["head"].to_string(),
        "gone" => frame["oldest"].to_string(),
        "error" => text("code"),
        "replay" => {
            let events = frame["events"].as_array().unwrap();
            let done = if frame["done"] == true { "done" } else { "more" };
            match (events.first(), events.last()) {
                (Some(first), Some(last)) => format!("{}-{} {done}", first["seq"], last["seq"]),
                _ => format!("none {done}"),
            }
        }
        _ => String::new(),
    };
    [kind, text("entity"), what].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A folder that is removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Arc<Folder> {
        let path = std::env::temp_dir().join(format!("inorder-gateway-{}-{}", std::process::id(), next()));
        std::fs::create_dir_all(&path).unwrap();
        Arc::new(Folder(path))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
