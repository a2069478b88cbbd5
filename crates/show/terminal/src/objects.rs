//! The driver's objects as the recorded calls created them, and the mappings.

use crate::table::{Style, write as write_table};
use schema::objects::Objects;
use std::io::{self, Write};

/// Writes the tree of a process's objects and the table of GPU mappings. `in_all`: how many there are of both.
pub fn write(out: &mut dyn Write, style: &Style, o: &Objects, in_all: [usize; 2]) -> io::Result<()> {
    writeln!(out, "{}", style.bold(&format!("Objects ({} in all)", in_all[0])))?;
    o.objects.iter().try_for_each(|n| writeln!(out, "  {}", n.text))?;
    writeln!(out, "\n{}", style.bold(&format!("GPU mappings ({} in all)", in_all[1])))?;
    let mut t = style.table(&[">address", ">length", "!memory", ">offset", "place"]);
    for m in &o.gpu_mappings {
        t.add_row([
            format!("{:#x}", m.base),
            crate::number::bytes(m.length),
            m.handle.map_or("UVM semaphore pool".into(), |h| format!("{h:#010x}")),
            format!("{:#x}", m.offset),
            m.place.name().into(),
        ]);
    }
    write_table(out, &t, 2)
}
