//! Lock protocols on futexes. Allocates nothing, uses no lock of std, reads no environment.
