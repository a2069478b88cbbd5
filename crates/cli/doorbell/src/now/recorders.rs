//! Asks recorders for their two looks, all at the same time.
//!
//! Invariant: a recorder that does not answer costs none of the others their answers, and no time after the end that is given.

use super::APART;
use recorder::control::client::{Client, ClientError, Place};
use recorder::control::messages::{Answer, Request, Status};
use std::sync::mpsc::channel;
use std::time::Instant;
use tape::live::{Live, LiveStack};

/// A recorder to be asked.
pub enum Asked {
    Open(Client),
    Place(Place),
}

impl Asked {
    fn pid(&self) -> i32 {
        match self {
            Asked::Open(client) => client.pid,
            Asked::Place(place) => place.pid,
        }
    }

    fn client(self) -> Result<Client, ClientError> {
        match self {
            Asked::Open(client) => Ok(client),
            Asked::Place(place) => place.connect(),
        }
    }
}

/// What a recorder answered.
pub struct Answered {
    pub client: Client,
    pub status: Status,
    pub first: Live,
    pub second: Live,
}

/// The answers, each with the program that the recorder started. The first looks are over when the second ones begin, so what both
/// have was so at one moment. Recorders that have not made the first one at `first_until` are left out. `seen` gets the status of
/// each of the others.
pub fn looks(
    asked: Vec<Asked>,
    first_until: Instant,
    until: Instant,
    mut seen: impl FnMut(&Status),
) -> Vec<(i32, Result<Answered, ClientError>)> {
    let pids: Vec<i32> = asked.iter().map(Asked::pid).collect();
    let first = each(asked, first_until, move |of: Asked| {
        let mut client = of.client()?;
        let status = ask(&mut client, &Request::Status, first_until)?.status.unwrap_or_default();
        let now = ask(&mut client, &Request::Now, first_until)?.now.unwrap_or_default();
        Ok((client, status, now))
    });
    first.iter().flatten().flatten().for_each(|(_, status, _)| seen(status));
    std::thread::sleep(APART);
    let silent = |n: usize| ClientError::Silent { pid: pids[n] };
    let first: Vec<Result<_, ClientError>> =
        first.into_iter().enumerate().map(|(n, r)| r.unwrap_or_else(|| Err(silent(n)))).collect();
    let second = each(first, until, move |first| {
        let (mut client, status, first) = first?;
        let second = ask(&mut client, &Request::Now, until)?.now.unwrap_or_default();
        Ok(Answered { client, status, first, second })
    });
    second.into_iter().enumerate().map(|(n, r)| (pids[n], r.unwrap_or_else(|| Err(silent(n))))).collect()
}

/// Where the threads are.
pub fn stacks(clients: Vec<Client>, until: Instant) -> Vec<Result<Vec<LiveStack>, ClientError>> {
    let pids: Vec<i32> = clients.iter().map(|c| c.pid).collect();
    let answer = move |mut client: Client| Ok(ask(&mut client, &Request::Stacks, until)?.stacks.unwrap_or_default());
    let answers = each(clients, until, answer).into_iter().zip(pids);
    answers.map(|(answer, pid)| answer.unwrap_or(Err(ClientError::Silent { pid }))).collect()
}

fn ask(client: &mut Client, request: &Request, until: Instant) -> Result<Answer, ClientError> {
    client.within(until.saturating_duration_since(Instant::now()));
    client.ask(request)
}

/// Does something for each, in a thread of its own. `None`: it has not ended at this time. (Its thread is left behind.)
fn each<T, R>(all: Vec<T>, until: Instant, f: impl Fn(T) -> R + Clone + Send + 'static) -> Vec<Option<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let mut results: Vec<Option<R>> = all.iter().map(|_| None).collect();
    let (tell, told) = channel();
    for (n, of) in all.into_iter().enumerate() {
        let (tell, f) = (tell.clone(), f.clone());
        // (If there can be no thread, that one has no result.)
        let _ = std::thread::Builder::new().name("asks".into()).spawn(move || tell.send((n, f(of))));
    }
    drop(tell);
    while let Ok((n, result)) = told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        results[n] = Some(result);
    }
    results
}
