//! Which QMDs are understood: version 4.0, and only fields that a graph's kernels were seen to use or whose meaning is clear.

use crate::early;
use crate::refused::Refused;
use pushbuf::qmd::{DependentAction, Qmd};
use pushbuf::semaphore::Reduction;

/// Beginnings of the names (class reference `clcbc0qmd.h`, QMDV04_00) of the fields that may be set. Their values are either copied with the QMD,
/// or are references that [`crate::Recipe::relocate`] moves.
///
/// Three kinds are not on the list, and so refused. CWD reference counters have numbers that all launches of the channel group share. Correlation
/// numbers are assigned by CUDA. Some fields are reserved by the hardware (HW_ONLY, RESUME, INNER, OUTER).
const UNDERSTOOD: &[&str] = &[
    "DEPENDENCE_COUNTER",
    "QMD_GROUP_ID",
    "QMD_TYPE",
    "REQUIRE_SCHEDULING_PCAS",
    "RELEASE_",
    "DEPENDENT_QMD",
    "SELF_COPY_ON_COMPLETION",
    "DEMOTE_L2_EVICT_LAST",
    "DISABLE_AUTO_INVALIDATE",
    "CWD_MEMBAR_",
    "CONSTANT_BUFFER_",
    "SHADER_LOCAL_MEMORY_",
    "SASS_VERSION",
    "API_VISIBLE_CALL_LIMIT",
    "SAMPLER_INDEX",
    "QMD_MINOR_VERSION",
    "QMD_MAJOR_VERSION",
    "SHARED_MEMORY_SIZE",
    "SHARED_ALLOCATION_ENABLE",
    "INVALIDATE_",
    "MIN_SM_CONFIG_",
    "MAX_SM_CONFIG_",
    "TARGET_SM_CONFIG_",
    "GRID_WIDTH",
    "GRID_HEIGHT",
    "GRID_DEPTH",
    "CTA_THREAD_DIMENSION",
    "REGISTER_COUNT",
    "BARRIER_COUNT",
    "PROGRAM_",
    "OCCUPANCY_",
    "GPC_CGA_",
    "CGA_CTA_DISTRIBUTION_MODE",
    // For kernels with clusters CUDA writes here which TPCs exist: on an H200 bits 72 to 127 are set.
    "TPC_DISABLE_MASK",
    // Programmatic dependent launch: see `crate::early`.
    "ARRIVE_AT_LATCH_",
    "WAIT_ON_LATCH_",
    "LATCH_ACQUIRE_INVALIDATE_",
    "ENABLE_PROGRAM_PRE_EXIT",
];
/// Fields that begin like one on that list and are not understood.
const REFUSED: &[&str] = &["RELEASE_TRAP_TYPE", "RELEASE_PAYLOAD64B", "RELEASE_RESERVED_INFO"];
/// Fields of queues, by which kernels launch kernels.
const OF_QUEUES: &[&str] = &["CIRCULAR_QUEUE_", "QUEUE_ENTRIES_PER_CTA", "COALESCE_WAITING_PERIOD"];

/// Reads a QMD to say which kernel it runs: also one of a version that cannot be learnt.
pub(crate) fn read(class: u32, address: u64, words: &[u32]) -> Result<Qmd, Refused> {
    parse(class, address, words).or_else(|refused| match refused {
        Refused::QmdVersion { .. } => Qmd::parse_for(class, words).ok_or(refused),
        _ => Err(refused),
    })
}

/// Reads a QMD; refuses it if any part is not understood.
pub(crate) fn parse(class: u32, address: u64, words: &[u32]) -> Result<Qmd, Refused> {
    let qmd = Qmd::parse_for(class, words).filter(|q| (q.layout().major, q.layout().minor) == (4, 0));
    let Some(qmd) = qmd else {
        if words.iter().all(|w| *w == 0) {
            return Err(Refused::QmdLeftOut { qmd: address });
        }
        let (major, minor) = Qmd::version_of(class, words);
        return Err(Refused::QmdVersion { qmd: address, major, minor });
    };
    if let Some((word, bits)) = qmd.unnamed() {
        return Err(Refused::QmdBits { qmd: address, word, bits });
    }
    for value in qmd.fields().filter(|v| v.value != 0) {
        let (field, value, name) = (value.field.name, value.value, value.name);
        let begins = |list: &[&str]| list.iter().any(|b| field.starts_with(b));
        if begins(OF_QUEUES) {
            return Err(Refused::DeviceLaunch { qmd: address, field, value });
        }
        // RESUME: the hardware's saved position in an interrupted grid.
        if !begins(UNDERSTOOD) || field.ends_with("_RESUME") || REFUSED.contains(&field) {
            return Err(Refused::QmdField { qmd: address, field, value });
        }
        if field == "QMD_TYPE" && name == Some("GRID_GPU_CGA") {
            return Err(Refused::Cooperative { qmd: address });
        }
        // Grids on several GPUs; not seen.
        if field == "QMD_TYPE" && !matches!(name, Some("GRID_NULL" | "GRID_CTA" | "GRID_GPC_CGA")) {
            return Err(Refused::QmdField { qmd: address, field, value });
        }
    }
    if qmd.field("QMD_TYPE") == Some(0) {
        return Err(Refused::DeviceLaunch { qmd: address, field: "QMD_TYPE", value: 0 });
    }
    early::check(address, &qmd)?;
    for (i, dependent) in qmd.dependents() {
        match dependent.action {
            DependentAction::Schedule
            | DependentAction::DecrementDependence
            | DependentAction::InvalidateCopySchedule => {}
            DependentAction::IncrementPut => {
                return Err(Refused::DeviceLaunch { qmd: address, field: "DEPENDENT_QMD_ACTION", value: 0 });
            }
            DependentAction::Reserved(value) => {
                let value = value.into();
                return Err(Refused::QmdField { qmd: address, field: "DEPENDENT_QMD_ACTION", value });
            }
        }
        if dependent.address == 0 {
            return Err(Refused::QmdField { qmd: address, field: "DEPENDENT_QMD_ENABLE", value: i.into() });
        }
    }
    for (i, release) in qmd.releases() {
        if qmd.release_reduction(i) != Some(Reduction::Add) || release.timestamp || release.wide {
            return Err(Refused::QmdField { qmd: address, field: "RELEASE_REDUCTION_OP", value: i.into() });
        }
    }
    Ok(qmd)
}

/// Whether it runs anything.
pub(crate) fn is_empty(qmd: &Qmd) -> bool {
    qmd.grid().contains(&0)
}
