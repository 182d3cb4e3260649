//! The command line, and the environment variables that stand for it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Parser, ValueEnum};

use crate::limits::{MAX_PARTITIONS, MAX_QUEUED_BYTES, MIN_QUEUED_BYTES};
use crate::log::Place;
use crate::model::{Models, Reduce};
use crate::token::Tokens;

/// The reference gateway of inorder: an event log, and sockets that are fed from it.
#[derive(Debug, Parser)]
#[command(name = "inorder-gateway", version, about)]
pub struct Flags {
    /// The address to listen on.
    #[arg(long, env = "INORDER_HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,

    /// The port to listen on; 0 takes a free one.
    #[arg(long, env = "INORDER_PORT", default_value_t = 8787)]
    pub port: u16,

    /// Where the log is kept: `memory`, the path of a SQLite file (`sqlite:PATH` says the same), or `postgres://USER@HOST/DATABASE`, which gateways may share.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, default_value = "memory", value_parser = place)]
    pub database: Place,

    /// Partitions of a log in PostgreSQL, fixed when its tables are made: entities of different ones are written at the same time. Without it: 4, or as many as the database has.
    #[arg(long, env = "INORDER_PARTITIONS", value_name = "N", value_parser = partitions)]
    pub partitions: Option<usize>,

    /// A file outside the database that notes how far the log has come, so that a restored older copy is noticed. SQLite has one beside its file anyway.
    #[arg(long, env = "INORDER_MARK", value_name = "FILE")]
    pub mark: Option<PathBuf>,

    /// A folder with a built page, served from the same port.
    #[arg(long, env = "INORDER_PAGE", value_name = "DIR")]
    pub page: Option<PathBuf>,

    /// The secret that tokens are signed with (HS256).
    #[arg(long, env = "INORDER_SECRET", hide_env_values = true)]
    pub secret: Option<String>,

    /// Anyone may read and write everything: for demos and tests.
    #[arg(long, env = "INORDER_OPEN", value_parser = BoolishValueParser::new())]
    pub open: bool,

    /// An origin whose pages may connect, such as https://example.com; may be repeated, `*` is all. Without it: the gateway's own, and loopback ones if it listens on a loopback address.
    #[arg(long = "origin", env = "INORDER_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub origins: Vec<String>,

    /// Seconds between two heartbeats.
    #[arg(long, env = "INORDER_HEARTBEAT", default_value = "15", value_parser = seconds)]
    pub heartbeat: Duration,

    /// Seconds between the signal to stop and the goodbyes; meanwhile `/health/ready` says no and all else goes on.
    #[arg(long, env = "INORDER_DRAIN", default_value = "0", value_parser = drain)]
    pub drain: Duration,

    /// Events kept per entity; without it all are kept.
    #[arg(long, env = "INORDER_RETAIN", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub retain: Option<u64>,

    /// Bytes that may wait for one socket before it is closed as too slow a reader; at least 1 MiB.
    #[arg(long, env = "INORDER_MAX_QUEUED", value_name = "BYTES", default_value_t = MAX_QUEUED_BYTES, value_parser = queue)]
    pub max_queued: usize,

    /// Start with a new epoch: after restoring a backup that also brought back the mark beside the database.
    #[arg(long)]
    pub new_epoch: bool,

    /// How a model makes its state: MODEL=merge (the default) or MODEL=replace; may be repeated.
    #[arg(long, value_name = "MODEL=HOW", value_parser = reduce)]
    pub reduce: Vec<(String, Reduce)>,

    /// The final statuses of a model: MODEL=STATUS,STATUS; may be repeated. By default completed, failed, cancelled; of deployment: live.
    #[arg(long, value_name = "MODEL=STATUSES", value_parser = pair)]
    pub terminal: Vec<(String, String)>,

    /// A model whose entities take changes after a final status; may be repeated.
    #[arg(long, value_name = "MODEL")]
    pub reopen: Vec<String>,

    /// What the gateway does by itself; may be repeated. Without it: nothing with a file, all with memory.
    #[arg(long, env = "INORDER_WORKLOAD", value_delimiter = ',')]
    pub workload: Vec<Workload>,

    /// The seed of the workloads, and of the faults.
    #[arg(long, env = "INORDER_SEED", default_value_t = 1)]
    pub seed: u64,

    /// How fast the workloads run: 2 is twice as fast.
    #[arg(long, env = "INORDER_PACE", default_value = "1", value_parser = pace)]
    pub pace: f64,

    /// Faults on purpose can be had over HTTP, at /faults: for demos and tests.
    #[arg(long, env = "INORDER_FAULTS", value_parser = BoolishValueParser::new())]
    pub faults: bool,

    /// How the log on stderr is written.
    #[arg(long, env = "INORDER_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug, or a filter such as `inorder_gateway=debug`.
    #[arg(long, env = "INORDER_LOG", default_value = "info")]
    pub log: String,

    /// For tests: do not listen for other gateways' commits.
    #[arg(long, hide = true)]
    pub deaf: bool,

    /// For tests: stop for ever between commit and push after so many events.
    #[arg(long, hide = true)]
    pub stop_before_push: Option<u64>,
}

/// What the gateway can do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Long-running jobs: `topic/jobs`.
    Jobs,
    /// Deployments, one of them retried by hand: `topic/deployments`.
    Deployments,
    /// Nothing.
    None,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

impl Flags {
    /// The rules of the models.
    pub fn models(&self) -> Models {
        let mut models = Models::default();
        for (model, reduce) in &self.reduce {
            models.of_mut(model).reduce = *reduce;
        }
        for (model, statuses) in &self.terminal {
            let statuses = statuses.split(',').filter(|status| !status.is_empty());
            models.of_mut(model).terminal = statuses.map(str::to_owned).collect();
        }
        for model in &self.reopen {
            models.of_mut(model).reopen = true;
        }
        models
    }

    /// How tokens are checked.
    ///
    /// # Errors
    /// A sentence, unless exactly one of `--open` and `--secret` says how.
    pub fn tokens(&self) -> Result<Tokens, String> {
        match (self.open, self.secret.as_deref()) {
            (true, None) => Ok(Tokens::Open),
            (false, Some(secret)) if !secret.is_empty() => Tokens::signed(secret).map_err(|error| error.to_string()),
            (true, Some(_)) => Err("--open and --secret contradict each other; give one of them".to_owned()),
            (false, _) => {
                Err("give --secret, which tokens are signed with, or --open, which lets everyone in".to_owned())
            }
        }
    }

    /// Whether a workload is wanted.
    pub fn wants(&self, workload: Workload) -> bool {
        if self.workload.is_empty() {
            self.database == Place::Memory
        } else {
            self.workload.contains(&workload) && !self.workload.contains(&Workload::None)
        }
    }
}

fn place(text: &str) -> Result<Place, String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(Place::Postgres(text.to_owned()));
    }
    let path = text.strip_prefix("sqlite:").map_or(text, |path| path.strip_prefix("//").unwrap_or(path));
    match path {
        "memory" | ":memory:" => Ok(Place::Memory),
        "" => Err("the path is empty; give a file, or `memory`".to_owned()),
        path if path.contains("://") => {
            Err("only postgres:// is known: give that, a file for SQLite, or `memory`".to_owned())
        }
        path => Ok(Place::File(path.into())),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.05 to 3600 is wanted".to_owned()),
    }
}

fn drain(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0 to 600 is wanted".to_owned()),
    }
}

fn queue(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes >= MIN_QUEUED_BYTES => Ok(bytes),
        _ => Err(format!("a number of bytes from {MIN_QUEUED_BYTES} on is wanted")),
    }
}

fn partitions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(partitions) if (1..=MAX_PARTITIONS).contains(&partitions) => Ok(partitions),
        _ => Err(format!("a number from 1 to {MAX_PARTITIONS} is wanted")),
    }
}

fn pace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(pace) if (0.01..=1000.0).contains(&pace) => Ok(pace),
        _ => Err("a number from 0.01 to 1000 is wanted".to_owned()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((model, value)) if !model.is_empty() => Ok((model.to_owned(), value.to_owned())),
        _ => Err("MODEL=VALUE is wanted".to_owned()),
    }
}

fn reduce(text: &str) -> Result<(String, Reduce), String> {
    let (model, how) = pair(text)?;
    match how.as_str() {
        "merge" => Ok((model, Reduce::Merge)),
        "replace" => Ok((model, Reduce::Replace)),
        _ => Err("MODEL=merge or MODEL=replace is wanted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn a_gateway_is_open_only_when_told_so() {
        let table: [(&[&str], bool); 5] = [
            (&[], false),
            (&["--open"], true),
            (&["--secret", "x"], true),
            (&["--secret", ""], false),
            (&["--open", "--secret", "x"], false),
        ];
        for (args, good) in table {
            let flags = Flags::try_parse_from([&["inorder-gateway"], args].concat()).unwrap();
            assert_eq!(flags.tokens().is_ok(), good, "{args:?}");
        }
    }

    #[test]
    fn a_place_is_memory_a_file_or_postgresql() {
        let table = [
            ("memory", Some(Place::Memory)),
            ("sqlite::memory:", Some(Place::Memory)),
            ("a/b.db", Some(Place::File("a/b.db".into()))),
            ("sqlite:///a/b.db", Some(Place::File("/a/b.db".into()))),
            ("sqlite:b.db", Some(Place::File("b.db".into()))),
            (
                "postgres://u:p@h:5432/d?options=-csearch_path%3Dx",
                Some(Place::Postgres("postgres://u:p@h:5432/d?options=-csearch_path%3Dx".to_owned())),
            ),
            ("mysql://x", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(place(text).ok(), expected, "{text}");
        }
    }
}
