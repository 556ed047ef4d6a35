// Light, dark, or as the system has it. The choice is kept by the browser; nothing else is.
const NAME = "topics-theme";

export function chosenTheme() {
  try {
    return localStorage.getItem(NAME) ?? "auto";
  } catch {
    return "auto";
  }
}

export function applyTheme(theme = chosenTheme()) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {
    // A browser that keeps nothing shows it all the same.
  }
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function nextTheme() {
  const order = ["auto", "light", "dark"];
  applyTheme(order[(order.indexOf(chosenTheme()) + 1) % order.length]);
  return chosenTheme();
}
