//! lockhouse
