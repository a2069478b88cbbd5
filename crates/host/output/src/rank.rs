//! The rank of this process in a parallel job, from the environment variables of its launcher.

/// The rank and the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    pub rank: u64,
    pub size: u64,
}

/// Rank and size, as torchrun, Open MPI, MPICH (Hydra, PMI) and Slurm name them. The innermost launcher first.
const VARIABLES: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

impl Rank {
    /// The rank that this environment gives, in a job of more than one process.
    pub fn of(get: impl Fn(&str) -> Option<String>) -> Option<Rank> {
        let number = |name: &str| get(name)?.trim().parse::<u64>().ok();
        let rank = |(rank, size): &(&str, &str)| Some(Rank { rank: number(rank)?, size: number(size)? });
        VARIABLES.iter().filter_map(rank).find(|r| r.size > 1)
    }

    pub fn of_this_process() -> Option<Rank> {
        Rank::of(|name| std::env::var(name).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Option<u64> {
        let get = |name: &str| vars.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
        Rank::of(get).map(|r| r.rank)
    }

    #[test]
    fn every_launcher_is_known() {
        for (rank, size) in VARIABLES {
            assert_eq!(of(&[(rank, "3"), (size, "4")]), Some(3), "{rank}");
            assert_eq!(of(&[(rank, "0"), (size, "1")]), None, "{rank}: alone");
            assert_eq!(of(&[(rank, "3")]), None, "{rank} without a size is something else's variable");
            assert_eq!(of(&[(rank, "x"), (size, "4")]), None, "{rank}");
        }
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")];
        assert_eq!(of(&[slurm[0], slurm[1], ("RANK", "5"), ("WORLD_SIZE", "8")]), Some(5));
        // A separate torchrun on each Slurm task.
        assert_eq!(of(&[slurm[0], slurm[1], ("RANK", "0"), ("WORLD_SIZE", "1")]), Some(1));
    }
}
