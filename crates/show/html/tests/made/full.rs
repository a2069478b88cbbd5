//! An invented saturated link.

use saturate::account::{Measured, Part, SCHEMA, Saturated, Status};
use saturate::link::{Access, Beside};
use saturate::plan::{self, Role};
use saturate::source::{Checked, Traffic};
use saturate::sum_up;
use saturate::wire::{Crossed, OnWire, Way};

pub fn saturated(functional: bool) -> Saturated {
    let text = "name = 'made'\nabout = 'nobody measured this'\n[matrix]\nbytes = '512B,4KiB,8KiB'\ndevices = [1, 2]\ntarget = ['gpu', 'host']";
    let plan = plan::read(text, "made", &[]).unwrap();
    let facts = serde_json::json!({ "pci.link": "generation 5 x16", "gpu.name": "GPU of a test" });
    let link = sum_up::link(&facts, &plan.link);
    let crossing = |_| Some(Traffic { access: Access::Read, beside: Beside::default() });
    let mut parts = Vec::new();
    for repeat in 0..5 {
        for (number, cell) in plan.cells().into_iter().enumerate() {
            let payload =
                if cell.role == Role::Peak { 55e9 } else { 20e9 + 1e9 * f64::from(repeat) + cell.bytes as f64 * 3e6 };
            let way = |mean: f64| Way { bytes: mean, mean, p50: mean, p95: mean };
            let crossed = Crossed {
                seconds: 1.0,
                samples: 10,
                payload: payload as u64,
                to_gpu: way(payload * 1.1),
                from_gpu: way(payload * 1.1),
            };
            let measured = Measured {
                seconds: 1.0,
                iops: payload / cell.bytes as f64,
                payload,
                latency: (1..20_000).collect(),
                cpu_ns_per_io: 70.0,
                cycles_per_io: Some(200.0),
                cycles_with_kernel: true,
                wire: OnWire { counters: Some(crossed), samples: None, missing: Vec::new() },
            };
            parts.push(Part {
                repeat,
                number: number as u32,
                cell,
                started: String::new(),
                status: Status::Done,
                ios: 1000,
                submitted: 1100,
                refused: 0,
                checked: Checked { blocks: 64, wrong: 0, first: None },
                measured: (!functional).then_some(measured),
                notes: Vec::new(),
            });
        }
    }
    let link = link.filter(|_| !functional);
    let cells = sum_up::totals(&plan, &parts, link.as_ref(), &crossing);
    let knees = sum_up::knees(&plan, &cells).1;
    Saturated {
        schema: SCHEMA.into(),
        doorbell: "0.0".into(),
        commit: None,
        command: Vec::new(),
        plan,
        started: "2026-01-01T00:00:00Z".into(),
        ended: "2026-01-01T00:01:00Z".into(),
        complete: true,
        functional,
        environment: serde_json::json!({ "facts": facts }),
        warnings: Vec::new(),
        source: "copy engines of a test".into(),
        link,
        cells,
        knees: if functional { Vec::new() } else { knees },
    }
}
