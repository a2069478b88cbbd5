//! What samples say: exact order statistics, histograms with a stated error, intervals over rounds, paired ratios, and
//! whether two runs differ. Pure: values in, figures out.
