//! Memset and memcpy nodes between kernels.

use super::capture::Maker;
use super::memory::{Place, Space};
use super::{Made, Shape, shape};
use crate::Result;
use cuda::Plane;

const FILLS: [(&str, usize); 3] = [("4B", 4), ("64B", 64), ("64KiB", 64 << 10)];
const COPIES: [(&str, usize); 3] = [("8B", 8), ("4KiB", 4 << 10), ("1MiB", 1 << 20)];
/// Rows of 100 bytes, one every 256.
const ROWS: Plane = Plane { pitch: 256, width: 100, height: 40 };
/// Name, to, from.
const WAYS: [(&str, Space, Space); 3] = [
    ("d2d", Space::Device, Space::Device),
    ("h2d", Space::Device, Space::Pinned),
    ("d2h", Space::Pinned, Space::Device),
];
const PAGEABLE: [(&str, Space, Space); 2] =
    [("h2d-pageable", Space::Device, Space::Pageable), ("d2h-pageable", Space::Pageable, Space::Device)];

pub(super) fn shapes() -> Vec<Shape> {
    let mut all = Vec::new();
    for (what, is_zero) in [("", false), ("-zero", true)] {
        for width in [1, 2, 4] {
            for (name, bytes) in FILLS {
                all.push(shape(format!("memset-{width}-{name}{what}"), move |m| {
                    filled(m, bytes, |m, place| m.fill(place, width, value(m, is_zero)))
                }));
            }
        }
        for width in [1, 4] {
            all.push(shape(format!("memset-{width}-2d{what}"), move |m| {
                filled(m, ROWS.pitch * ROWS.height, |m, place| m.fill_rows(place, ROWS, width, value(m, is_zero)))
            }));
        }
    }
    all.extend(WAYS.into_iter().flat_map(copies));
    all
}

/// Between the GPU's memory and memory of the heap.
pub(super) fn pageable() -> Vec<Shape> {
    PAGEABLE.into_iter().flat_map(copies).collect()
}

/// Bytes in, a kernel, bytes out, and no other step.
pub(super) fn frames() -> Vec<Shape> {
    let of = |(kind, space)| {
        COPIES.map(|(name, bytes)| {
            shape(format!("frame-{kind}-{name}"), move |m| {
                let (source, target) = (m.memory.take(space, bytes)?, m.memory.take(space, bytes)?);
                let (came, made) = (m.take(bytes)?, m.take(bytes)?);
                m.input(source);
                let part = m.capture(|| {
                    m.memcpy(came, source)?;
                    m.copy(0, made, came)?;
                    m.memcpy(target, made)
                })?;
                Ok(part.into())
            })
        })
    };
    [("pinned", Space::Pinned), ("pageable", Space::Pageable)].into_iter().flat_map(of).collect()
}

fn copies((way, to, from): (&'static str, Space, Space)) -> Vec<Shape> {
    let rows = shape(format!("memcpy-{way}-2d"), move |m| {
        copied(m, (to, from), ROWS.pitch * ROWS.height, |m, to, from| m.memcpy_rows(to, from, ROWS))
    });
    let plain = COPIES.map(|(name, bytes)| {
        shape(format!("memcpy-{way}-{name}"), move |m| copied(m, (to, from), bytes, |m, to, from| m.memcpy(to, from)))
    });
    plain.into_iter().chain([rows]).collect()
}

fn value(m: &Maker<'_>, is_zero: bool) -> u32 {
    // (No byte of it is 0, and no two are the same.)
    if is_zero { 0 } else { m.value() & 0x0f0f_0f0f | 0x1020_4080 }
}

/// A kernel writes a place, a part of it is filled, a kernel copies it on.
fn filled<'c>(m: &Maker<'c>, bytes: usize, fill: impl Fn(&Maker<'c>, Place) -> cuda::Result<()>) -> Result<Made<'c>> {
    let log = m.take_log(1)?;
    let whole = 2 * bytes.max(256);
    let (source, place, out) = (m.take(whole)?, m.take(whole)?, m.take(whole)?);
    let part = m.capture(|| {
        m.log(0, log, m.value())?;
        m.copy(0, place, source)?;
        m.copy(0, place.first(256), log.first(256))?;
        fill(m, place.part(128, bytes))?;
        m.copy(0, out, place)
    })?;
    Ok(part.into())
}

/// A kernel writes the source if that is in GPU memory, then it is copied, then a kernel copies the target if that is in GPU memory.
fn copied<'c>(
    m: &Maker<'c>,
    (to, from): (Space, Space),
    bytes: usize,
    copy: impl Fn(&Maker<'c>, Place, Place) -> cuda::Result<()>,
) -> Result<Made<'c>> {
    let log = m.take_log(2)?;
    let (target, source) = (m.memory.take(to, bytes)?, m.memory.take(from, bytes)?);
    if from != Space::Device {
        m.input(source);
    }
    let (first, out) = (m.take(bytes)?, m.take(bytes)?);
    let head = bytes.min(256);
    let part = m.capture(|| {
        m.log(0, log, m.value())?;
        if from == Space::Device {
            m.copy(0, source, first)?;
            m.copy(0, source.first(head), log.first(head))?;
        }
        copy(m, target, source)?;
        if to == Space::Device {
            m.copy(0, out, target)?;
        }
        m.log(0, log, m.value())
    })?;
    Ok(part.into())
}
