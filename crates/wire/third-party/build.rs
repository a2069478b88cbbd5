//! Nothing at all: a crate has a build script so that cargo takes its build dependencies into account.

fn main() {}
