package postgres

// Unfit exports unfit.
var Unfit = unfit
