// Before anything is drawn, so that the page does not flash in the other colours.
(() => {
  let kept = null;
  try { kept = localStorage.getItem("resurge-theme"); } catch { /* storage may be off */ }
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
