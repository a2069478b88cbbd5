//! Student's t distribution, as far as intervals and tests need it.

use std::f64::consts::FRAC_2_PI;

/// The part below `x` of Student's t distribution with `freedom` degrees of freedom.
pub fn student_cdf(x: f64, freedom: u32) -> f64 {
    // Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums for whole numbers of degrees of freedom.
    let nu = f64::from(freedom);
    let angle = (x / nu.sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum, mut k) = if odd { (cosine, cosine, 3) } else { (1.0, 1.0, 2) };
    while k + 1 < freedom {
        term *= cosine * cosine * f64::from(k - 1) / f64::from(k);
        sum += term;
        k += 2;
    }
    let within = match freedom {
        1 => FRAC_2_PI * angle,
        _ if odd => FRAC_2_PI * (angle + sine * sum),
        _ => sine * sum,
    };
    (1.0 + within) / 2.0
}

/// The value with the part `p`, between 0 and 1, of Student's t distribution below it.
pub fn student_quantile(p: f64, freedom: u32) -> f64 {
    if p > 0.5 {
        // The lower half has more digits, and the distribution is symmetric.
        return -student_quantile(1.0 - p, freedom);
    }
    let (mut low, mut high) = (-1.0, 0.0);
    while student_cdf(low, freedom) > p && low > -1e12 {
        low *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if student_cdf(middle, freedom) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
