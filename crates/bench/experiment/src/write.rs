//! Writes an [`Experiment`] as a text that reads back as the same.

use crate::keys;
use crate::model::{Bound, Experiment, LoadSpec, Metric, SubjectSpec, What};
use crate::values::{SUM, Word, amount_text, time_text, within_text};
use settings::sizes;
use std::fmt::{Display, Write};

impl Experiment {
    /// The whole experiment as TOML, including the values that the file left to their defaults.
    pub fn to_toml(&self) -> String {
        let mut out = Out(String::new());
        out.text("name", &self.name);
        out.optional("variant", self.variant.as_ref());
        out.text("about", &self.about);
        let run = &self.run;
        out.section("[run]");
        out.number("seed", run.seed);
        out.number("rounds", run.rounds);
        out.number("repeats", run.repeats);
        if let Some(samples) = run.samples {
            out.number("samples", samples);
        }
        out.optional("duration", run.duration_ns.map(time_text));
        out.text("timeout", time_text(run.timeout_ns));
        out.text("noise", time_text(run.noise_ns));
        out.number("counters-every", run.counters_every);
        out.text("meter", time_text(run.meter_ns));
        out.optional("patience", run.patience_ns.map(time_text));
        out.text("class", run.class);
        out.text("cpus", &run.cpus);
        out.text("policy", &run.policy);
        out.text("gpu", run.gpu.word());
        out.text("device", &run.device);
        out.text("record", run.record.word());
        self.subjects.iter().for_each(|subject| out.subject(subject));
        self.loads.iter().for_each(|load| out.load(load));
        if !self.matrix.is_empty() {
            out.section("[matrix]");
        }
        for axis in &self.matrix {
            out.list(&quoted(&axis.name), &axis.values);
        }
        out.section("[verify]");
        out.number("every", self.verify.every);
        if let Some(compare) = &self.compare {
            out.section("[compare]");
            out.text("baseline", &compare.baseline);
            out.text("metric", compare.metric);
        }
        for repay in &self.repays {
            out.section("[[repay]]");
            for (key, sum) in [("once", &repay.once), ("each", &repay.each), ("against", &repay.against)] {
                out.text(key, sum.join(SUM));
            }
        }
        for largest in &self.largests {
            out.section("[[largest]]");
            out.text("axis", &largest.axis);
            out.bounded(&largest.subject, largest.metric, &largest.bound);
        }
        for assert in &self.asserts {
            out.section("[[assert]]");
            out.bounded(&assert.subject, assert.metric, &assert.bound);
        }
        out.0
    }
}

struct Out(String);

impl Out {
    fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n{name}");
    }

    fn text(&mut self, key: &str, value: impl Display) {
        debug_assert!(keys::SECTIONS.iter().any(|s| s.keys.iter().any(|k| k.name == key)), "{key}");
        let _ = writeln!(self.0, "{key} = {}", quoted(&value.to_string()));
    }

    fn optional(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        let _ = writeln!(self.0, "{key} = [{}]", values.join(", "));
    }

    fn number(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn bounded(&mut self, subject: &str, metric: Metric, bound: &Bound) {
        self.text("subject", subject);
        self.text("metric", metric);
        match bound {
            Bound::AtMost(amount) => self.text("at-most", amount_text(*amount, metric)),
            Bound::AtLeast(amount) => self.text("at-least", amount_text(*amount, metric)),
            Bound::AtMostTimes(factor, of) => self.text("at-most-times", format!("{factor} {of}")),
            Bound::AboveNoise(ns) => self.text("above-noise", time_text(*ns as u64)),
            Bound::WithinBest(within) => {
                self.text("within-best", within_text(within));
                if !within.among.is_empty() {
                    self.list("among", &within.among);
                }
            }
        }
    }

    fn what(&mut self, what: &What, name: &str) {
        match what {
            What::Route(route) => self.text("route", route),
            What::Call(call) => self.text("call", call),
        }
        self.optional("name", Some(name).filter(|name| *name != what.text()));
    }

    fn subject(&mut self, subject: &SubjectSpec) {
        self.section("[[subject]]");
        self.what(&subject.what, &subject.name);
        if !subject.sizes.is_empty() {
            self.list("sizes", &subject.sizes.iter().map(|bytes| sizes::text(*bytes)).collect::<Vec<_>>());
        }
        self.number("back-to-back", subject.back_to_back);
        self.text("addresses", subject.addresses);
        self.text("data", subject.data.word());
        self.text("arrival", subject.arrival);
        self.text("observe", subject.observe.word());
        self.optional("class", subject.class);
        self.optional("cpus", subject.cpus.as_ref());
        self.optional("deadline", subject.deadline_ns.map(time_text));
        self.number("rests", subject.rests);
        self.optional("baseline", subject.baseline.as_ref());
        self.optional("beside", (!subject.beside.is_empty()).then(|| subject.beside.join(SUM)));
    }

    fn load(&mut self, load: &LoadSpec) {
        self.section("[[load]]");
        self.what(&load.what, &load.name);
        self.optional("bytes", (load.bytes > 0).then(|| sizes::text(load.bytes)));
        self.number("count", load.count);
        self.optional("rate", load.rate.map(|rate| format!("{rate}/s")));
        self.text("cpus", &load.cpus);
        self.text("class", load.class);
        self.number("check-every", load.check_every);
        self.optional("must-reach", load.must_reach);
        self.text("process", load.process.word());
    }
}

/// A basic string of TOML: one of JSON, but for DEL.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}
