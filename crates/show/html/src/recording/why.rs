//! What `doorbell why` says of a recording: the answer in a sentence, the calls that lost the most time, and the causes of all of it.

use crate::Error;
use crate::document::{Block, Cell, Kind, Notice, Section, Table, head, number, text};
use crate::numbers::{count, moment, ns, percent};
use crate::recording::moment::picture as moment_picture;
use crate::recording::timeline::Lost;
use crate::view;
use decode::Recording;
use schema::Summary;
use schema::names::Named;
use schema::slow_calls::{Cause, SlowCall, UnfinishedRow, Why};
use schema::symbols::Places;
use slow_calls::Wanted;
use terminal::number::nanoseconds;
use terminal::slow_calls::{advice_for, answer, called, left_out, lines, slow};

/// How to make a recording that has an answer.
const NOT_RECORDED: &str = "CUDA calls were not recorded. Record them with `doorbell record --locks PROGRAM`: the page then begins with the call \
                            that lost the most time, and to what.";

/// `None` if calls were not recorded.
pub struct Answer(Option<(Why, Places)>);

impl Answer {
    pub fn of(r: &Recording) -> Result<Answer, Error> {
        Ok(Answer(slow_calls::why(r, &Wanted::default())?.map(|(mut why, places)| {
            symbols::of_calls(&mut why, &places);
            (why, places)
        })))
    }

    /// `known`: reasons that the page has already, why the recording is not complete.
    pub fn section(&self, known: &[String]) -> Section {
        let mut section = Section::new("why", "Why calls were slow");
        let Some((why, places)) = &self.0 else { return section.with(Block::Answer(NOT_RECORDED.into())) };
        let named = Named { places, symbols: &why.symbols };
        answer(why, named).into_iter().for_each(|text| section.push(Block::Answer(text)));
        let picture = why.moment.as_ref().and_then(moment_picture);
        section.blocks.extend(picture.map(|picture| Block::Figure(Box::new(picture))));
        for because in why.incomplete_because.iter().filter(|because| !known.contains(because)) {
            section.push(Block::Notice(Notice { kind: Kind::Warning, text: format!("Not complete: {because}") }));
        }
        if !why.worst.is_empty() {
            let title = format!("Slow calls: {}", slow(why));
            section.push(Block::Table(calls("slow-calls", title, &why.worst, named)));
        }
        section.blocks.extend(left_out(why).map(Block::Text));
        if !why.causes.is_empty() {
            section.push(Block::Table(causes(why)));
        }
        let more = view::section("more-waits", "", |out, style| {
            terminal::slow_calls::pageable(out, why, named, style)?;
            terminal::slow_calls::waits(out, why, named, style)
        });
        section.blocks.extend(more.blocks);
        if !why.not_watched.is_empty() {
            section.push(Block::Text(format!("Not watched: {}.", why.not_watched.join("; "))));
        }
        section
    }

    /// The calls to which the timeline goes, in this order.
    pub fn lost(&self, s: &Summary) -> Vec<Lost> {
        let Some((why, places)) = &self.0 else { return Vec::new() };
        let named = Named { places, symbols: &why.symbols };
        let line = |line: lines::Line| (line.depth, line.ns.map_or_else(String::new, nanoseconds), line.text);
        let call = |c: &SlowCall| Lost {
            process: c.process,
            tid: c.tid,
            is_call: true,
            at: c.at,
            ns: c.ns,
            lost_ns: c.lost_ns,
            name: c.call.clone(),
            lines: lines::of_call(c, named).into_iter().map(line).collect(),
        };
        let most = why.worst.first().map_or(0, |c| c.lost_ns).max(why.slow_from_ns);
        let is_worst =
            |u: &UnfinishedRow| why.worst.iter().any(|c| (c.pid, c.tid, c.number) == (u.pid, u.tid, u.number));
        let longest = why.first_unfinished.iter().max_by_key(|u| u.ns);
        let hung = longest.filter(|u| u.ns > most && !is_worst(u)).map(|u| Lost {
            process: s.processes.iter().rfind(|p| p.pid == u.pid).map_or(0, |p| p.index),
            tid: u.tid,
            is_call: true,
            at: u.at,
            ns: u.ns,
            lost_ns: u.ns,
            name: u.call.clone(),
            lines: vec![(0, String::new(), "it had not returned when its thread, or the recording, ended".into())],
        });
        hung.into_iter().chain(why.worst.iter().map(call)).collect()
    }
}

fn calls(name: &str, title: String, rows: &[SlowCall], named: Named<'_>) -> Table {
    let columns = vec![
        head("call"),
        number("lost", "ns"),
        text("to"),
        text("of which"),
        text("thread"),
        number("took", "ns"),
        number("at", "s"),
        text("called at"),
    ];
    let mut table = Table::new(name, title, columns);
    for c in rows {
        let part = c.parts.iter().find(|p| Some(p.cause) == c.cause);
        let of = part.map_or_else(Vec::new, |part| lines::of_part(part, c.tid, named));
        let of: Vec<String> = of
            .into_iter()
            .skip(1)
            .map(|line| line.ns.map_or_else(String::new, |ns| format!("{} ", nanoseconds(ns))) + &line.text)
            .collect();
        table.row(vec![
            called(c).into(),
            ns(c.lost_ns),
            c.cause.map_or("by design", Cause::name).into(),
            of.join("; ").into(),
            schema::names::thread(c.tid, &c.thread).into(),
            ns(c.ns),
            moment(c.at),
            named.site(&c.site).into(),
        ]);
    }
    table.without_empty()
}

fn causes(why: &Why) -> Table {
    let columns = vec![
        head("where the time went"),
        number("time", "ns"),
        text("what to do"),
        number("share", ""),
        number("calls", ""),
        number("longest", "ns"),
        number("while starting", "ns"),
    ];
    let title = format!("{} took {}", terminal::number::of(why.calls, "call"), nanoseconds(why.ns));
    let mut table = Table::new("causes", title, columns);
    for c in &why.causes {
        let by_design = c.cause.is_by_design().then(|| "by design".to_owned());
        table.row(vec![
            c.cause.name().into(),
            ns(c.ns),
            advice_for(c, why).or(by_design).map_or_else(Cell::none, Cell::from),
            percent(c.ns as f64 / why.ns.max(1) as f64),
            count(c.calls),
            ns(c.longest_ns),
            if c.starting_ns == 0 { Cell::none() } else { ns(c.starting_ns) },
        ]);
    }
    table.without_empty()
}
