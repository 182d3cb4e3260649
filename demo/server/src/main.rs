//! The reference gateway of `inorder.v1.json`.
//!
//! ```text
//!   POST ──► writer ──► log ──► hub ──► sockets ──► pages
//! ```
//!
//! It holds the producer's side of the rules (G1 to G13): every change gets its number in one transaction,
//! and whatever a socket is told is read from the log.

mod answer;
mod fault;
mod flags;
mod follow;
mod gateway;
mod http;
mod hub;
mod limits;
mod log;
mod mark;
mod metrics;
mod model;
mod name;
mod origin;
mod outbox;
mod parts;
mod rows;
mod socket;
mod token;
mod topic;
mod workload;
mod writer;

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::fault::Faults;
use crate::flags::{Flags, LogFormat};
use crate::gateway::Gateway;
use crate::hub::Hub;
use crate::limits::DRAIN_TIMEOUT;
use crate::log::{Log, Opening};
use crate::metrics::Metrics;
use crate::origin::Origins;
use crate::writer::Writer;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    keep_log(&flags);
    match run(flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inorder-gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn keep_log(flags: &Flags) {
    let filter = tracing_subscriber::EnvFilter::new(&flags.log);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match flags.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

async fn run(flags: Flags) -> Result<(), Failure> {
    let tokens = flags.tokens()?;
    // Signals count from here on, so that one that comes during the start is not lost.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (wake, woken) = watch::channel(0);
    let ear = (!flags.deaf).then(|| wake.clone());
    let opening = Opening {
        place: &flags.database,
        partitions: flags.partitions,
        mark: flags.mark.as_deref(),
        models: flags.models(),
        retain: flags.retain,
        new_epoch: flags.new_epoch,
    };
    let log = Arc::new(Log::open(opening, ear).await?);
    let metrics = Arc::new(Metrics::default());
    let (stop, stopping) = watch::channel(false);
    let listener = TcpListener::bind((flags.host, flags.port)).await?;
    let gateway = Arc::new(Gateway {
        writer: Writer::start(log.clone(), wake, metrics.clone(), flags.stop_before_push),
        hub: Hub::start(log.clone(), woken, flags.heartbeat, metrics.clone()).await?,
        log: log.clone(),
        tokens,
        origins: Origins { listed: flags.origins.clone(), loopback_only: flags.host.is_loopback() },
        heartbeat: flags.heartbeat,
        max_queued: flags.max_queued,
        faults: flags.faults.then(|| Arc::new(Faults::new(flags.seed))),
        stopping: stopping.clone(),
        draining: AtomicBool::new(false),
        metrics,
    });
    workload::start(&gateway, &flags);
    let routes = http::routes(gateway.clone(), flags.page.as_deref());
    let address = listener.local_addr()?;
    let mut stopped = stopping.clone();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    let server = tokio::spawn(server.into_future());
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on http://{address}")?;
    stdout.flush()?;
    tracing::info!(%address, epoch = %log.epoch(), open = flags.open, "started");

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    gateway.draining.store(true, Ordering::Relaxed);
    if !flags.drain.is_zero() {
        tracing::info!(seconds = flags.drain.as_secs_f64(), "draining");
        // Asked twice, it does not wait.
        tokio::select! {
            () = sleep(flags.drain) => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    tracing::info!(sockets = gateway.hub.sockets(), "stopping");
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    stop.send_replace(true);
    let _ = timeout_at(deadline, server).await;
    let _ = timeout_at(deadline, async {
        while gateway.hub.sockets() > 0 {
            sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let _ = timeout_at(deadline, log.close()).await;
    tracing::info!("stopped");
    Ok(())
}
